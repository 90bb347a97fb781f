package fleet

import (
	"context"
	"fmt"
	"sync"
	"time"

	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	daemon "github.com/surehand/surehand/transferd/client"
)

// Event is one transition at one daemon.
type Event struct {
	Node    string
	Life    uint64 // the daemon's incarnation
	Machine string // target or source
	Attempt handoff.Attempt
	Name    string
	From    string
	To      string
	Code    string
	At      time.Time // when it was read here
}

func (e Event) String() string {
	return fmt.Sprintf("%s.i%d %s %s %s: %s -> %s %s", e.Node, e.Life, e.Machine, e.Attempt, e.Name, e.From, e.To, e.Code)
}

// Accepted says that the event was not refused.
func (e Event) Accepted() bool { return e.Code == "" || e.Code == handoff.CodeNone.String() }

// Became says whether the event moved a machine into a state.
func (e Event) Became(machine, state string) bool {
	return e.Machine == machine && e.To == state && e.From != state && e.Accepted()
}

// traces follows every daemon, over its lives.
type traces struct {
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu     sync.Mutex
	events []Event
	more   chan struct{} // closed at each event
}

func follow(controls map[string]*daemon.Control) *traces {
	ctx, cancel := context.WithCancel(context.Background())
	t := &traces{cancel: cancel, more: make(chan struct{})}
	for _, c := range controls {
		t.all.Go(func() {
			for ctx.Err() == nil {
				// Ends with the daemon's life; the next one is followed anew.
				_ = c.Watch(ctx, t.add)
				t.missed()
				select {
				case <-ctx.Done():
				case <-time.After(pollEvery):
				}
			}
		})
	}
	return t
}

// missed notes that a daemon may have told something that nobody heard.
func (t *traces) missed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.events); n > 0 && t.events[n-1].Machine != gap {
		t.events = append(t.events, Event{Machine: gap})
	}
}

func (t *traces) stop() {
	t.cancel()
	t.all.Wait()
}

func (t *traces) add(m *transferv1.TraceEvent) {
	a, err := rpc.FromAttempt(m.GetAttempt())
	if err != nil {
		return // an event of no attempt
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, Event{Node: m.GetNode(), Life: m.GetIncarnation(), Machine: m.GetMachine(), Attempt: a,
		Name: m.GetEvent(), From: m.GetFrom(), To: m.GetTo(), Code: m.GetCode(), At: time.Now()})
	close(t.more)
	t.more = make(chan struct{})
}

// Mark is a place in the trace, from which on events are looked at.
type Mark int

// Mark is now.
func (f *Fleet) Mark() Mark {
	f.traces.mu.Lock()
	defer f.traces.mu.Unlock()
	return Mark(len(f.traces.events))
}

// Since gives the events after a mark.
func (f *Fleet) Since(m Mark) []Event {
	f.traces.mu.Lock()
	defer f.traces.mu.Unlock()
	return append([]Event(nil), f.traces.events[m:]...)
}

// Await waits for an event after a mark, which may have come already.
func (f *Fleet) Await(ctx context.Context, m Mark, want func(Event) bool) (Event, error) {
	for {
		f.traces.mu.Lock()
		fresh, more := f.traces.events[m:], f.traces.more
		f.traces.mu.Unlock()
		for _, e := range fresh {
			if want(e) {
				return e, nil
			}
		}
		m += Mark(len(fresh))
		select {
		case <-more:
		case <-ctx.Done():
			return Event{}, fmt.Errorf("the event did not come: %w", ctx.Err())
		}
	}
}
