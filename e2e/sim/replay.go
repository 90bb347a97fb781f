package sim

import (
	"context"
	"slices"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// replay lets the recorded events come in their order.
func (x *execution) replay() {
	select {
	case <-x.ready:
	case <-x.hold:
		return
	}
	for {
		time.Sleep(time.Microsecond)
		x.mu.Lock()
		if x.done >= len(x.past) {
			x.mu.Unlock()
			return
		}
		e, turn := x.past[x.done], x.turn
		if e.signal != "" {
			x.pass()
			x.mu.Unlock()
			x.signal(e)
			continue
		}
		x.mu.Unlock()
		select {
		case <-turn: // the step took its answer, or nobody asks any more
		case <-x.hold:
			return
		case <-time.After(time.Minute):
			if time.Since(x.h.start) < x.h.in.Deadline {
				x.s.violate("S18: the workflow does not ask for the recorded %v again", e.call)
			}
			// Which timer had fired is not recorded here, as a server would: what
			// comes after the deadline cannot be replayed.
			x.s.giveUp("a takeover after the deadline")
			return
		}
	}
}

// recorded waits for the turn of a recorded call and answers it.
func (x *execution) recorded(c call) (entry, bool) {
	x.mu.Lock()
	if !slices.ContainsFunc(x.past[x.done:], func(e entry) bool { return e.signal == "" && e.call == c }) {
		x.mu.Unlock()
		return entry{}, false
	}
	for !x.over {
		if e := x.past[x.done]; e.signal == "" && e.call == c {
			x.pass()
			x.mu.Unlock()
			return e, true
		}
		turn := x.turn
		x.mu.Unlock()
		<-turn
		time.Sleep(10 * time.Microsecond) // the workflow goes on with what it heard first
		x.mu.Lock()
	}
	x.mu.Unlock()
	return entry{err: errSuperseded}, true
}

// pass goes on to the next recorded event. Callers hold the lock.
func (x *execution) pass() {
	x.done++
	x.turned()
}

// turned wakes whoever waits for a turn. Callers hold the lock.
func (x *execution) turned() {
	close(x.turn)
	x.turn = make(chan struct{})
}

// wake is the server's word that something was recorded from outside.
func (x *execution) wake(n int) {
	_ = x.s.call(context.Background(), x.s.lives["h"], x.g.life.name, "task", handoff.Attempt{}, func(context.Context) error {
		<-x.ready
		x.h.mu.Lock()
		log := slices.Clone(x.h.log)
		x.h.mu.Unlock()
		x.mu.Lock()
		var fresh []entry
		for i := x.told; i < n; i++ {
			if log[i].signal != "" {
				fresh = append(fresh, log[i])
			}
		}
		x.told = max(x.told, n)
		x.mu.Unlock()
		for _, e := range fresh {
			x.signal(e)
		}
		x.poke()
		return nil
	})
}

func (x *execution) signal(e entry) {
	if x.isOver() {
		return
	}
	switch e.signal {
	case "ended":
		x.env.SignalWorkflow(steps.SignalEnded, e.payload)
	case "reader":
		x.env.SignalWorkflow(steps.SignalReattach, e.payload)
	case "cancel":
		x.env.CancelWorkflow()
	}
}

func (x *execution) isOver() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.over
}

// supersede ends an execution whose records are not taken any more: its
// workflow unwinds against steps that do nothing.
func (x *execution) supersede() {
	x.mu.Lock()
	was := x.over
	x.over = true
	if !was {
		x.turned()
	}
	x.mu.Unlock()
	if !was && x.env != nil {
		select {
		case <-x.ready:
			x.env.CancelWorkflow()
		default:
		}
	}
}

// stop lets everything of the execution end.
func (x *execution) stop() {
	x.supersede()
	x.mu.Lock()
	defer x.mu.Unlock()
	select {
	case <-x.hold:
	default:
		close(x.hold)
	}
}
