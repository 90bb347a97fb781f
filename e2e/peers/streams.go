package peers

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/surehand/surehand/e2e/traffic"
)

// Open is what streams cost that are held open.
type Open struct {
	Streams         int
	Before, During  int64 // resident bytes of the router
	PerStream       int64
	Whole           int // that ended as they should
	Failures        map[string]int
	HandoffsASecond float64 // at which they were begun
}

// Streams are held open by tokens that are far apart: far enough for the last
// stream to begin before the first ends.
const (
	openStep   = 2 * time.Second // at least, and openEach for each stream
	openEach   = 10 * time.Millisecond
	openTokens = 3
	openWave   = 64 // begun at once
	openWithin = 20 * time.Minute
)

// streams opens so many on each router, one router after the other, and looks
// at its memory when each has its first token.
func (w *world) streams(ctx context.Context, c Config) (map[string]Open, error) {
	out := map[string]Open{}
	for _, s := range w.sides {
		if s.router == nil {
			continue
		}
		o, err := s.open(ctx, c.Streams)
		if err != nil {
			return nil, fmt.Errorf("%s with %d streams: %w", s.name, c.Streams, err)
		}
		out[s.name] = o
		fmt.Fprintf(c.Out, "%s: %d streams open, %d whole\n", s.name, o.Streams, o.Whole)
	}
	return out, nil
}

func (s *side) open(ctx context.Context, n int) (o Open, err error) {
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	step := max(openStep, time.Duration(n)*openEach)
	for _, e := range []*Engine{s.p, s.d} {
		if err := e.setPace(ctx, pace{step: step}); err != nil {
			return o, err
		}
	}
	if o.Before, err = s.router.RSS(); err != nil {
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
			a := s.send(ctx, request{prompt: shortPrompt, tokens: openTokens, onPiece: first})
			if a.Pieces == 0 {
				<-wave
			}
			return a
		})
	}()
	for begun.Load()+over.Load() < int64(n) && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
	}
	o.HandoffsASecond = float64(begun.Load()) / time.Since(began).Seconds()
	o.During, err = s.router.RSS()
	o.Streams = int(begun.Load())
	o.PerStream = (o.During - o.Before) / int64(max(1, o.Streams))
	for _, a := range <-answers {
		if bad := wrong(a, openTokens); bad != nil {
			o.Failures[clip(bad.Error())]++
		} else {
			o.Whole++
		}
	}
	return o, err
}
