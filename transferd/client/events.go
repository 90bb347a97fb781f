package client

import (
	"sync"

	"github.com/surehand/surehand/contracts/handoff"
)

// EventKind says what happened.
type EventKind uint8

const (
	// TargetCommitted: the target is visible; decode may begin.
	TargetCommitted EventKind = iota + 1
	// TargetClosed: over, and never committed.
	TargetClosed
	// TargetAborted: over after a commit; stop decoding.
	TargetAborted
	// TargetDrained: nothing can write the target's memory any more; free it.
	TargetDrained
	// SourceClosed: nobody may begin a read of the source any more.
	SourceClosed
	// SourceDrained: nobody reads the source's memory any more; free it.
	SourceDrained
	// Reattached: the daemon is back; Adopted and Closed tell what became of targets.
	Reattached
	// Detached: the daemon is gone; committed targets stay what they are.
	Detached
)

func (k EventKind) String() string {
	names := [...]string{"none", "target-committed", "target-closed", "target-aborted", "target-drained", "source-closed", "source-drained", "reattached", "detached"}
	if int(k) >= len(names) {
		return "out-of-range"
	}
	return names[k]
}

// Event tells an engine what became of its attempts.
type Event struct {
	Kind    EventKind
	Attempt handoff.Attempt
	Cause   handoff.Code // why it is closed or aborted; CodeNone for a plain end
	Drained bool         // true on closed and aborted events whose Drained event follows at once

	Incarnation handoff.Incarnation // Reattached: of the daemon now
	Adopted     []handoff.Attempt   // Reattached: targets that stay committed
	Closed      []handoff.Attempt   // Reattached: attempts that are over and drained; their own events follow
}

// queue hands events from the reader, which must never wait, to a channel. Its
// length is bounded by what an engine has open: each attempt has at most four.
type queue struct {
	mu    sync.Mutex
	items []Event
	wake  chan struct{}
	out   chan Event
}

func newQueue() *queue {
	return &queue{wake: make(chan struct{}, 1), out: make(chan Event, 64)}
}

func (q *queue) put(events ...Event) {
	q.mu.Lock()
	q.items = append(q.items, events...)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) take() []Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := q.items
	q.items = nil
	return out
}

// run pumps until stop is closed, then closes the channel.
func (q *queue) run(stop <-chan struct{}) {
	defer close(q.out)
	for {
		for _, e := range q.take() {
			select {
			case q.out <- e:
			case <-stop:
				return
			}
		}
		select {
		case <-q.wake:
		case <-stop:
			return
		}
	}
}
