// Package fault strikes real processes in a chosen phase of a handoff. The
// daemons' own traces say when a phase begins, and the client when tokens come,
// so that no product code has to know of it.
package fault

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

// Phase of a handoff, and how its begin is seen from outside.
type Phase struct {
	Name  string
	began func(fleet.Event) bool
	piece int // of the client's stream; 0: the phase is seen by began
}

// The phases, in their order. Each begins with what its name says: D's memory
// is open, P computes, bytes are on their way, they are validated, the target
// is visible, the client reads.
var (
	Reserve   = Phase{Name: "reserve", began: became("target", handoff.TargetOpened.String())}
	Prefill   = Phase{Name: "prefill", began: became("source", handoff.SourceOpened.String())}
	Transfer  = Phase{Name: "transfer", began: became("target", handoff.TargetRunning.String())}
	Validated = Phase{Name: "validated", began: became("target", handoff.TargetValidated.String())}
	Commit    = Phase{Name: "commit", began: became("target", handoff.TargetCommitted.String())}
	Decode    = Phase{Name: "decode", piece: 3}
)

func became(machine, state string) func(fleet.Event) bool {
	return func(e fleet.Event) bool { return e.Became(machine, state) }
}

// BeforeFirstToken says whether nothing may have reached the client yet when
// the phase begins.
func (p Phase) BeforeFirstToken() bool { return p.piece == 0 }

// ErrMissed says that the request ended before its phase began.
var ErrMissed = errors.New("the request ended before the phase began")

// Struck is what became of a request that was struck.
type Struck struct {
	traffic.Answer
	Attempt handoff.Attempt // that was struck; zero in the decode phase, which has no event
	Mark    fleet.Mark      // before the request
}

// Strike sends an ask through a client and calls inject once, in the moment its
// phase begins, with the event that told, which the decode phase has not got. It
// is for one request at a time: whatever the daemons tell after its begin is
// taken for this request's. With an error of inject, or ErrMissed, the answer is
// still told.
func Strike(ctx context.Context, f *fleet.Fleet, c *traffic.Client, a traffic.Ask, p Phase, inject func(fleet.Event) error) (out Struck, err error) {
	out.Mark = f.Mark()
	if p.piece > 0 {
		var failed error
		hit := false
		a.OnPiece = func(n int) {
			if n == p.piece {
				hit, failed = true, inject(fleet.Event{})
			}
		}
		out.Answer = c.Send(ctx, a)
		if !hit {
			failed = ErrMissed
		}
		return out, failed
	}
	watching, done := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() {
		var e fleet.Event
		if e, err = f.Await(watching, out.Mark, p.began); err != nil {
			err = ErrMissed
			return
		}
		out.Attempt, err = e.Attempt, inject(e)
	})
	out.Answer = c.Send(ctx, a)
	done()
	all.Wait()
	return out, err
}

// PublicID is the name under which clients and histories know an attempt's handoff.
func PublicID(a handoff.Attempt) string {
	id, _, _ := strings.Cut(string(a.Handoff), ".")
	return id
}

// Attempts that an event happened to, each once, in their order.
func Attempts(events []fleet.Event, machine, state string) []handoff.Attempt {
	var out []handoff.Attempt
	seen := map[handoff.Attempt]bool{}
	for _, e := range events {
		if e.Became(machine, state) && !seen[e.Attempt] {
			seen[e.Attempt] = true
			out = append(out, e.Attempt)
		}
	}
	return out
}

// Prefilled are the attempts whose prompt a P began to compute.
func Prefilled(events []fleet.Event) []handoff.Attempt {
	return Attempts(events, "source", handoff.SourceOpened.String())
}

// Committed are the attempts that became visible at an engine.
func Committed(events []fleet.Event) []handoff.Attempt {
	return Attempts(events, "target", handoff.TargetCommitted.String())
}
