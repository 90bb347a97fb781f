package orchestrator

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
)

func TestASlowStartIsWaitedForWhileTemporalAnswersOthers(t *testing.T) {
	answer := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil }
	for _, c := range []struct {
		name    string
		answers int // one each 300 ms
		lasts   time.Duration
		says    string
	}{
		{"away", 0, time.Second, "Temporal answered nothing for 1s"},
		{"busy for a while", 5, 2 * time.Second, "Temporal answered nothing for 1s"},
		{"busy for ever", 100, startPatience, "Temporal, busy, did not answer it for 10s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var p pulse
				time.Sleep(time.Minute) // whatever was answered long ago
				begun := time.Now()
				ctx, cancel := p.patient(t.Context(), time.Second)
				defer cancel()
				var others sync.WaitGroup
				defer others.Wait()
				others.Go(func() {
					for range c.answers {
						if ctx.Err() != nil {
							return
						}
						time.Sleep(300 * time.Millisecond)
						if err := p.intercept(t.Context(), "", nil, nil, nil, answer); err != nil {
							t.Error(err)
						}
					}
				})
				<-ctx.Done()
				if got := time.Since(begun); got < c.lasts || got > c.lasts+time.Second {
					t.Errorf("waited %s, want about %s", got, c.lasts)
				}
				if got := context.Cause(ctx).Error(); got != c.says {
					t.Error(got)
				}
			})
		})
	}
}
