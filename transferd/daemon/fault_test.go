package daemon_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
)

// rounds of faults on real processes; more of them: -rounds 500.
var rounds = flag.Int("rounds", 24, "rounds of the test of faults")

const (
	poison = 0xdb // of what was drained: it is the next request's
	moat   = 0xca // around and between the places
	// watch is how long memory that was drained is looked at for late bytes.
	watch = 300 * time.Millisecond
)

// poisonTarget fills the target's places.
func (s *soakPair) poisonTarget(t *testing.T) {
	t.Helper()
	for _, at := range s.at {
		check(t, s.dm.WriteAt(at, bytes.Repeat([]byte{poison}, soakBytes)))
	}
}

// mustHold checks every byte of D's memory: canaries between the pieces, and in
// the pieces what want says.
func (s *soakPair) mustHold(t *testing.T, what string, want func(piece int) []byte) {
	t.Helper()
	got := make([]byte, s.dm.Size())
	check(t, s.dm.ReadAt(0, got))
	for i, at := range s.at {
		if !bytes.Equal(got[at:at+soakBytes], want(i)) {
			t.Fatalf("%s: piece %d holds other bytes", what, i)
		}
		copy(got[at:], bytes.Repeat([]byte{moat}, soakBytes))
	}
	if !bytes.Equal(got, bytes.Repeat([]byte{moat}, len(got))) {
		t.Fatalf("%s: a byte lies out of place", what)
	}
}

func poisoned(int) []byte { return bytes.Repeat([]byte{poison}, soakBytes) }

// sources gives P's bytes as they are now.
func (s *soakPair) sources(t *testing.T) func(int) []byte {
	t.Helper()
	b := make([]byte, s.pm.Size())
	check(t, s.pm.ReadAt(0, b))
	return func(i int) []byte { return b[s.at[i] : s.at[i]+soakBytes] }
}

// ai-dynamo/nixl#2047, #149, V-08: the source is stopped, not dead; the pull is
// over within its progress deadline, and waiting for it costs next to no CPU. From then
// on no byte of the target changes, although the source comes back to life.
func TestAfterADeadlineNoByteChanges(t *testing.T) {
	t.Parallel() // what it looks at is in processes of its own
	ph, dh := startChild(t, "tp"), startChild(t, "td")
	s := newSoakPair(t, ph, dh, "x", client.NewMemory, client.NewMemory)
	for round := range 3 {
		o, err := s.open(background(t))
		check(t, err)
		ph.signal(t, syscall.SIGSTOP)
		o.spec.ProgressDeadline = time.Second
		before, began := dh.processor(t), time.Now()
		_, err = dh.control.Pull(background(t), o.spec, nil)
		wantCode(t, err, handoff.CodeProgress)
		if used := dh.processor(t) - before; used > time.Since(began)/2 {
			t.Fatalf("%s of CPU time to wait for %s", used, time.Since(began))
		}
		check(t, s.freeLater(background(t), s.d, o.plan.Attempt, client.TargetDrained))
		s.poisonTarget(t)
		ph.signal(t, syscall.SIGCONT)
		eventuallyAfter(t, watch)
		s.mustHold(t, fmt.Sprint("round ", round), poisoned)
		check(t, s.d.Freed(background(t), o.plan.Attempt, false))
		_, err = ph.control.Undo(background(t), o.plan, o.plan.Attempt.Operation("undo"), client.Sides{Source: true})
		check(t, err)
		check(t, s.free(background(t), s.p, o.plan.Attempt, client.SourceDrained))
	}
	check(t, s.transfer(background(t)))
}

// freeLater waits for the drain without saying that the blocks are taken back.
func (s *soakPair) freeLater(ctx context.Context, e *client.Engine, a handoff.Attempt, k client.EventKind) error {
	for {
		select {
		case ev := <-e.Events():
			if ev.Kind == k && ev.Attempt == a {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("no %s of %s", k, a)
		}
	}
}

// Faults at any moment of a pull, on real processes: a daemon is killed, or stopped
// for a while, an attempt is undone on either side. Whatever comes of it, a commit
// means P's bytes, a drained target is never written again, and no byte lies out of
// place: not in memory that the daemons map, nor in that which they reach by the kernel.
func TestFaultsOnRealProcessesPutNoByteOutOfPlace(t *testing.T) {
	t.Parallel() // what it looks at is in processes of its own
	plain := func(_ string, bytes int) (*client.Memory, error) { return client.NewPlainMemory(bytes) }
	for name, kind := range map[string]memoryOf{"memfd": client.NewMemory, "process": plain} {
		t.Run(name, func(t *testing.T) { faults(t, kind) })
	}
}

func faults(t *testing.T, kind memoryOf) {
	ph, dh := startChild(t, "tp"), startChild(t, "td")
	s := newSoakPair(t, ph, dh, "x", kind, kind)
	undo := func(c *child, o open, sides client.Sides) {
		_, _ = c.control.Undo(background(t), o.plan, o.plan.Attempt.Operation("undo"), sides) // what it says is not looked at
	}
	faults := []struct {
		name string
		do   func(o open)
	}{
		{"P's daemon is killed", func(open) { s.ph.kill(); s.ph = startLife(t, "tp", s.ph.data) }},
		{"D's daemon is killed", func(open) { s.dh.kill(); s.dh = startLife(t, "td", s.dh.data) }},
		{"P's daemon stops for a while", func(open) { s.pause(t, s.ph) }},
		{"D's daemon stops for a while", func(open) { s.pause(t, s.dh) }},
		{"the target is undone", func(o open) { undo(s.dh, o, client.Sides{Target: true}) }},
		{"the source is undone", func(o open) { undo(s.ph, o, client.Sides{Source: true}) }},
		{"P's engine drops it", func(o open) { _ = s.p.CloseSource(background(t), o.plan.Attempt, handoff.CodeEngine) }},
		{"nothing", func(open) {}},
	}
	committed := 0
	for round := range *rounds {
		fault := faults[round%len(faults)]
		s.mustBeAttached(t)
		s.poisonTarget(t)
		o, err := s.open(background(t))
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		want := s.sources(t)
		done := make(chan bool, 1)
		dh := s.dh
		go func() { done <- s.finish(dh, o) }()
		<-time.After(time.Duration(rand.IntN(1200)) * time.Microsecond) // the fault's moment, not an assertion
		fault.do(o)
		acknowledged := <-done
		visible := s.d.IsVisible(0, o.plan.Attempt)
		if acknowledged && !visible && fault.name != "D's daemon is killed" {
			t.Fatalf("%s: an acknowledged commit is not visible", fault.name)
		}
		if visible {
			committed++
			s.mustHold(t, fault.name, want)
		}
		s.endBoth(t, o)
		s.poisonTarget(t)
		eventuallyAfter(t, watch/10)
		s.mustHold(t, fault.name, poisoned)
	}
	t.Logf("%d of %d rounds committed", committed, *rounds)
	s.mustBeAttached(t)
	check(t, s.transfer(background(t)))
}

// mustBeAttached waits until both engines are with the present lives of their daemons.
func (s *soakPair) mustBeAttached(t *testing.T) {
	t.Helper()
	for c, e := range map[*child]*client.Engine{s.ph: s.p, s.dh: s.d} {
		eventually(t, "the engine attached", func() bool {
			d, err := c.control.Describe(background(t), false)
			return err == nil && d.GetIncarnation() == uint64(e.Incarnation())
		})
	}
}

// finish pulls and commits; it says whether the commit was acknowledged.
func (s *soakPair) finish(dh *child, o open) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := dh.control.Pull(ctx, o.spec, nil); err != nil {
		return false
	}
	_, err := dh.control.Commit(ctx, o.plan, o.token, o.plan.Attempt.Operation("commit"), 0)
	return err == nil
}

func (s *soakPair) pause(t *testing.T, c *child) {
	t.Helper()
	c.signal(t, syscall.SIGSTOP)
	<-time.After(time.Duration(rand.IntN(50)) * time.Millisecond) // the fault's length
	c.signal(t, syscall.SIGCONT)
}

// endBoth ends an attempt whose state is not known, and waits until both sides are
// drained: by their daemons' word, or by the word of the life that came after.
func (s *soakPair) endBoth(t *testing.T, o open) {
	t.Helper()
	s.mustBeAttached(t)
	a := o.plan.Attempt
	for _, side := range []struct {
		c     *child
		e     *client.Engine
		k     client.EventKind
		sides client.Sides
	}{{s.dh, s.d, client.TargetDrained, client.Sides{Target: true}}, {s.ph, s.p, client.SourceDrained, client.Sides{Source: true}}} {
		eventually(t, "the engine is attached", func() bool {
			_, err := side.c.control.Release(background(t), o.plan, a.Operation("release"), side.sides)
			code := handoff.CodeOf(err)
			return code == handoff.CodeNone || code == handoff.CodeStaleIncarnation || code == handoff.CodeConflict
		})
		check(t, s.free(background(t), side.e, a, side.k))
	}
}
