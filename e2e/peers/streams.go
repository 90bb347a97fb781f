package peers

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/peers/fake"
	"github.com/surehand/surehand/e2e/traffic"
)

// Open is what streams cost that are held open.
type Open struct {
	Streams         int           // open at once, each with its first token
	Before, During  int64         // resident bytes of the router
	PerStream       int64         // of them
	Goroutines      [3]int        // before, during and after; 0: the router does not tell
	Descriptors     [3]int        // likewise
	Whole           int           // that ended as they should
	Settled         time.Duration // after the last end, until goroutines were back
	Failures        map[string]int
	HandoffsASecond float64 // at which they were begun
}

const (
	openTokens = 3
	openWave   = 16 // begun at once: as many as a gateway makes durable at once
	openWithin = 30 * time.Minute
	openStall  = 30 * time.Second // without one more begun: so many are what the router holds
	// openMany is from where two descriptors a stream are more than one process
	// may have by default: clients then share connections, where the router lets them.
	openMany = 4096
	// backWithin bounds the wait for goroutines to end after the last stream.
	backWithin = 3 * time.Minute
	// backMargin is how many more there may be: pools and timers breathe.
	backMargin = 64
)

// streams opens so many on each router, one router after the other, and looks
// at its memory when each has its first token.
func (w *world) streams(ctx context.Context, c Config) (map[string]Open, error) {
	out := map[string]Open{}
	for _, s := range w.sides {
		if s.router == nil {
			continue
		}
		o, err := s.open(ctx, c.Streams, func() error { return w.profileOpen(ctx, s, c.Profile) })
		if err != nil {
			return nil, fmt.Errorf("%s with %d streams: %w", s.name, c.Streams, err)
		}
		out[s.name] = o
		fmt.Fprintf(c.Out, "%s: %d streams open, %d whole\n", s.name, o.Streams, o.Whole)
	}
	return out, nil
}

// profileOpen keeps what ours has on its heap and what its goroutines wait for.
func (w *world) profileOpen(ctx context.Context, s *side, dir string) error {
	if dir == "" || s.name != Ours {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"heap", "goroutine"} {
		if err := fleet.SaveProfile(ctx, w.f.Pprof[fleet.Gateway], name, filepath.Join(dir, "open-"+name+".pprof")); err != nil {
			return err
		}
	}
	return nil
}

// hold has the engines keep every stream after its first token, or lets all go on.
func (s *side) hold(ctx context.Context, on bool) error {
	for _, e := range []*Engine{s.p, s.d} {
		if err := e.set(ctx, fake.Pace{Hold: on}); err != nil {
			return err
		}
	}
	return nil
}

func (s *side) open(ctx context.Context, n int, opened func() error) (o Open, err error) {
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	if n > openMany && s.name == Ours {
		many := *s
		many.client = traffic.NewMultiplexed(s.address)
		defer many.client.Close()
		s = &many
	}
	if err := s.hold(ctx, true); err != nil {
		return o, err
	}
	if err := s.look(ctx, &o, 0); err != nil {
		return o, err
	}
	o.Failures = map[string]int{}
	var begun, over atomic.Int64
	wave := make(chan struct{}, openWave)
	answers := make(chan []traffic.Answer, 1)
	began := time.Now()
	go func() {
		answers <- traffic.Closed(ctx, n, n, func(ctx context.Context, _, _ int) traffic.Answer {
			defer over.Add(1)
			wave <- struct{}{}
			first := func(pieces int) {
				if pieces == 1 {
					begun.Add(1)
					<-wave
				}
			}
			a := s.insist(ctx, request{prompt: shortPrompt, tokens: openTokens, onPiece: first})
			if a.Pieces == 0 {
				<-wave
			}
			return a
		})
	}()
	// A router that holds no more than so many has the others wait for those.
	for last, at := int64(0), time.Now(); last < int64(n) && time.Since(at) < openStall && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		if now := begun.Load() + over.Load(); now > last {
			last, at = now, time.Now()
		}
	}
	o.HandoffsASecond = float64(begun.Load()) / time.Since(began).Seconds()
	o.Streams = int(begun.Load() - over.Load())
	if err = s.look(ctx, &o, 1); err == nil {
		err = opened()
	}
	o.PerStream = (o.During - o.Before) / int64(max(1, o.Streams))
	if went := s.hold(ctx, false); err == nil {
		err = went
	}
	for _, a := range <-answers {
		if bad := wrong(a, openTokens); bad != nil {
			o.Failures[clip(bad.Error())]++
		} else {
			o.Whole++
		}
	}
	if err != nil {
		return o, err
	}
	return o, s.back(ctx, &o)
}

// insist asks again as long as it is told to come again, as clients do.
func (s *side) insist(ctx context.Context, q request) traffic.Answer {
	for {
		a := s.send(ctx, q)
		if a.RetryAfter == 0 || a.Status != http.StatusTooManyRequests && a.Status != http.StatusServiceUnavailable {
			return a
		}
		select {
		case <-time.After(a.RetryAfter):
		case <-ctx.Done():
			return a
		}
	}
}

// back waits until the goroutines are as many as before.
func (s *side) back(ctx context.Context, o *Open) error {
	for began := time.Now(); ; {
		if err := s.look(ctx, o, 2); err != nil {
			return err
		}
		o.Settled = time.Since(began)
		if o.Goroutines[2] <= o.Goroutines[0]+backMargin || o.Settled > backWithin {
			return nil
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look notes memory, goroutines and descriptors: before (0), during (1) or after (2).
func (s *side) look(ctx context.Context, o *Open, when int) (err error) {
	rss, err := s.router.RSS()
	if err != nil {
		return err
	}
	if when < 2 {
		*[]*int64{&o.Before, &o.During}[when] = rss
	}
	if o.Descriptors[when], err = s.router.Descriptors(); err != nil || s.name != Ours {
		return err
	}
	o.Goroutines[when], err = goroutines(ctx, s.address)
	return err
}

// goroutines of a Go process that serves metrics.
func goroutines(ctx context.Context, address string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	r.Close = true
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "go_goroutines "); ok {
			return strconv.Atoi(text)
		}
	}
	return 0, fmt.Errorf("%s tells no goroutines", address)
}
