package fence

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/internal/flagpage"
	"github.com/surehand/surehand/transferd/segment"
)

var all = []uint32{0, 1, 2, 3}

// lend opens a source of plan p with every piece announced.
func lend(t *testing.T, c *Core, e *Engine, p handoff.Plan, blocks ...uint32) SourceGrant {
	t.Helper()
	g, err := c.OpenSource(e, SourceSpec{Plan: p, Shape: shape, Offsets: offsets(), Blocks: blocks})
	check(t, err)
	check(t, c.Announce(e, p.Attempt, all, []uint32{0, 0, 0, 0}))
	return g
}

func admit(t *testing.T, c *Core, p handoff.Plan, g SourceGrant) *Reading {
	t.Helper()
	r, err := c.Admit(context.Background(), p.Attempt, g.Capability, Holder{"n1", 1})
	check(t, err)
	return r
}

func (b *bench) count(f func(Notice) bool) (n int) {
	for _, x := range b.notices {
		if f(x) {
			n++
		}
	}
	return n
}

// A source that is over while it is read counts as quarantined, is told once, and
// drained once; then a full quarantine opens nothing.
func TestASourceThatIsReadIsQuarantinedUntilItIsNot(t *testing.T) {
	b, c, e, p := attached(t, func(c *Config) { c.QuarantineMax = shape.Bytes() - 1 })
	r := admit(t, c, p, lend(t, c, e, p))
	check(t, r.Begin([]uint32{0, 1}))
	for range 2 {
		_, err := c.Release(p, Sides{Source: true})
		check(t, err)
	}
	if s := c.Stats(); s.QuarantinedBytes != shape.Bytes() || s.SourcesQuarantined != 1 || c.Busy() != 1 {
		t.Fatalf("%+v, busy %d", s, c.Busy())
	}
	wantCode(t, c.FreedSource(e, p.Attempt), handoff.CodeNotReady)
	_, err := c.OpenSource(e, SourceSpec{Plan: plan("next", 1, 1), Shape: shape, Offsets: offsets()})
	wantCode(t, err, handoff.CodeCapacity)
	select {
	case <-r.Stopped():
	default:
		t.Fatal("the reader was not told")
	}
	wantCode(t, r.Why(), handoff.CodeCancelled)
	r.Done(2)
	closed := func(n Notice) bool { return n.IsSource && n.Source == handoff.SourceClosed && !n.Drained }
	drained := func(n Notice) bool { return n.IsSource && n.Source == handoff.SourceUnknown && n.Drained }
	if b.count(closed) != 1 || b.count(drained) != 1 || len(b.notices) != 2 {
		t.Fatalf("%+v", b.notices)
	}
	r.Destroy()
	if c.Busy() != 0 {
		t.Fatal(c.Busy(), "are busy")
	}
	check(t, c.FreedSource(e, p.Attempt))
	lend(t, c, e, plan("next", 1, 1))
}

// A failed write ends what it posted: then the target is drained and told so.
func TestPostedOperationsThatFailDrainTheirTarget(t *testing.T) {
	b, c, e, p := attached(t)
	l, _, err := c.Land(p, openTarget(t, c, e, p, 0))
	check(t, err)
	check(t, l.Post(4, 1))
	check(t, l.Landed([]uint32{0, 1}, 1, 100)) // and one of which a part came
	l.By("tcp")
	if got := l.Progress(); got != (Progress{handoff.TargetRunning, 2, 4, 100, "tcp"}) {
		t.Fatalf("%+v", got)
	}
	_, err = c.Undo(p, Sides{Target: true})
	check(t, err)
	wantCode(t, l.Why(), handoff.CodeClosed)
	wantCode(t, c.FreedTarget(e, p.Attempt), handoff.CodeNotReady)
	openTarget(t, c, e, plan("next", 1, 1), 1) // a quarter of the segment may be quarantined, no more is
	l.Failed(1)
	if b.count(func(n Notice) bool { return n.Drained }) != 1 {
		t.Fatalf("%+v", b.notices)
	}
	l.Destroyed()
	l.End()
	check(t, c.FreedTarget(e, p.Attempt))
	if s := c.Stats(); s.PulledBytes != 100 || s.QuarantinedBytes != 0 {
		t.Fatalf("%+v", s)
	}
	if l.State() != handoff.TargetClosed {
		t.Fatal(l.State())
	}
}

// A pull is one at a time; when it ended another may begin, and what is validated
// is answered with what the pull did.
func TestATargetHasOnePullAtATimeAndRemembersItsResult(t *testing.T) {
	b, c, e, p := attached(t)
	token := openTarget(t, c, e, p, 0)
	l, _, err := c.Land(p, token)
	check(t, err)
	_, _, err = c.Land(p, token)
	wantCode(t, err, handoff.CodeConflict)
	l.End()
	validated(t, c, p, token)
	l.End() // late, and of another pull
	again, pulled, err := c.Land(p, token)
	check(t, err)
	if again != nil || pulled == nil || pulled.Bytes != shape.Bytes() {
		t.Fatalf("%v %+v", again, pulled)
	}
	ans, err := c.Commit(p, token, 0)
	check(t, err)
	if s := c.Stats(); s.Committed != 1 || s.CommittedBytes != shape.Bytes() || ans.State != handoff.TargetCommitted || e.Page.State(0) != flagpage.Visible {
		t.Fatalf("%+v %+v", s, ans)
	}
	other := b.engine("e")
	wantCode(t, c.FinishTarget(other, p.Attempt), handoff.CodeDenied)
	check(t, other.Close())
	check(t, c.FinishTarget(e, p.Attempt))
	wantCode(t, l.Why(), handoff.CodeAborted)
	_, _, err = c.Land(p, token)
	wantCode(t, err, handoff.CodeAborted)
	before := c.Stats().Refusals[handoff.CodeAborted]
	_, _, err = c.Land(p, token)
	wantCode(t, err, handoff.CodeAborted)
	if n := c.Stats().Refusals[handoff.CodeAborted]; n != before+1 {
		t.Fatal(n, "refusals are counted, before it was", before)
	}
}

// An engine's death ends what it had open and gives its memory back, whatever
// stood in it: committed, closed and not yet freed, open, lent.
func TestADeadEngineLeavesNothingWhateverItHeld(t *testing.T) {
	var told []Event
	b, c := newBench(t), core(t, 1, func(c *Config) { c.Trace = func(e Event) { told = append(told, e) } })
	e := b.engine("e")
	unmapped, inner := 0, e.Close
	e.Close = func() error { unmapped++; return errors.Join(inner(), errors.New("told")) }
	attach(t, c, e)
	committed, closed, open := plan("committed", 1, 1), plan("closed", 1, 1), plan("open", 1, 1)
	token := openTarget(t, c, e, committed, 0)
	validated(t, c, committed, token)
	_, err := c.Commit(committed, token, 0)
	check(t, err)
	for i, p := range []handoff.Plan{closed, open} {
		openTarget(t, c, e, p, uint32(i)+1)
	}
	lend(t, c, e, closed)
	_, err = c.Undo(closed, Sides{Target: true, Source: true})
	check(t, err)
	lend(t, c, e, open)
	read := plan("read", 1, 1)
	r := admit(t, c, read, lend(t, c, e, read))
	check(t, r.Begin([]uint32{0}))
	c.Detach(e)
	c.Detach(e)
	if unmapped != 0 {
		t.Fatal("unmapped under a posted read")
	}
	targets, _ := c.Records(10)
	for _, r := range targets {
		if r.Plan == committed && r.State != handoff.TargetAborted || r.Plan == open && r.Cause != handoff.CodeEngine {
			t.Fatalf("%+v", r)
		}
	}
	again := b.engine("e")
	_, err = c.Attach(again)
	wantCode(t, err, handoff.CodeNotReady)
	r.Done(1)
	r.Destroy()
	if unmapped != 1 {
		t.Fatal("unmapped", unmapped, "times")
	}
	if n := c.Stats().Tombstones; n != 6 { // three of each side
		t.Fatal(n)
	}
	unmap := func(e Event) bool { return e.Name == "unmap" }
	if !slices.ContainsFunc(told, unmap) {
		t.Fatalf("a failed unmapping is not told: %+v", told)
	}
	told = nil
	for _, holds := range []bool{false, true} { // nothing, or what it only had to free
		once, inner := 0, again.Close
		again.Close = func() error { once++; return inner() }
		attach(t, c, again)
		if holds {
			openTarget(t, c, again, plan("last", 1, 1), 7)
			_, err = c.Undo(plan("last", 1, 1), Sides{Target: true})
			check(t, err)
		}
		if c.Detach(again); once != 1 {
			t.Fatal("an idle engine is unmapped", once, "times")
		}
		again = b.engine("e")
	}
	check(t, again.Close())
	if slices.ContainsFunc(told, unmap) {
		t.Fatal("a good one is")
	}
}

// Whoever waits for a source to open learns at once that it is closed; one that
// leaves takes nobody else's place along.
func TestWhoWaitsForASourceIsToldHoweverOthersLeave(t *testing.T) {
	_, c, e, _ := attached(t, func(c *Config) { c.Lease = time.Minute })
	for _, closes := range []bool{false, true} {
		p := plan("h", 1, 1)
		if closes {
			p.Attempt.Handoff = "closed"
		}
		token, err := c.mint(SourceSpec{Plan: p, Shape: shape}, 1)
		check(t, err)
		errs := make(chan error, 2)
		wait := func(ctx context.Context) {
			r, err := c.Admit(ctx, p.Attempt, token, Holder{"n1", 1})
			if err == nil {
				r.Destroy()
			}
			errs <- err
		}
		waiting := func(n int) {
			for now := -1; now != n; {
				c.enter()
				if now = 0; c.arrivals[p.Attempt] != nil {
					now = c.arrivals[p.Attempt].waiting
				}
				c.leave()
			}
		}
		short, leave := context.WithCancel(context.Background())
		go wait(short)
		waiting(1)
		go wait(context.Background())
		waiting(2)
		leave()
		wantCode(t, <-errs, handoff.CodeNotReady)
		waiting(1)
		if closes {
			_, err = c.Undo(p, Sides{Source: true})
			check(t, err)
			wantCode(t, <-errs, handoff.CodeClosed)
		} else {
			_, err = c.OpenSource(e, SourceSpec{Plan: p, Shape: shape, Offsets: offsets()})
			check(t, err)
			check(t, <-errs)
		}
		waiting(0)
	}
}

// Freed sources are forgotten like freed targets.
func TestAFreedSourceIsForgottenAfterItsRetention(t *testing.T) {
	_, c, e, p := attached(t)
	lend(t, c, e, p)
	check(t, c.CloseSource(e, p.Attempt, handoff.CodeEngine))
	check(t, c.FreedSource(e, p.Attempt))
	passes(c, Retention)
	if n := c.Stats().Tombstones; n > 0 {
		t.Fatalf("%d are never forgotten", n)
	}
}

// What a side does not know of this life is drained, of another life it is refused;
// of two sides both have to be.
func TestADrainIsOfTheSidesAskedForAndOfThisLife(t *testing.T) {
	b, c := newBench(t), core(t, 1)
	e := b.engine("e")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p := plan("h", 1, 1)
	_, err := c.AwaitDrained(ctx, p, Sides{Source: true})
	wantCode(t, err, handoff.CodeUnavailable) // its engine has not attached
	_, err = c.Undo(p, Sides{Source: true})
	wantCode(t, err, handoff.CodeUnavailable)
	_, err = c.Undo(p, Sides{})
	wantCode(t, err, handoff.CodeInvalid)
	if c.IsReady() {
		t.Fatal("ready without an engine")
	}
	attach(t, c, e)
	for _, s := range []Sides{{Target: true}, {Source: true}, {true, true}} {
		if got, err := c.AwaitDrained(ctx, p, s); err != nil || !got.Drained {
			t.Errorf("unknown, %+v: %+v %v", s, got, err)
		}
		_, err := c.AwaitDrained(ctx, plan("h", 1, 2), s)
		wantCode(t, err, handoff.CodeStaleIncarnation)
	}
	far, near := plan("far", 1, 1), handoff.Seat{Engine: "x", Node: "n2", Incarnation: 4}
	far.D = near // only the source is ours
	if got, err := c.AwaitDrained(ctx, far, Sides{Source: true}); err != nil || !got.Drained {
		t.Errorf("of P's side alone: %+v %v", got, err)
	}
	far = plan("far", 1, 1)
	far.P = near
	if got, err := c.AwaitDrained(ctx, far, Sides{Target: true}); err != nil || !got.Drained {
		t.Errorf("of D's side alone: %+v %v", got, err)
	}
	openTarget(t, c, e, p, 0)
	r := admit(t, c, p, lend(t, c, e, p))
	check(t, r.Begin([]uint32{0}))
	both, err := c.Undo(p, Sides{true, true})
	check(t, err)
	if both.Drained || both.Target != handoff.TargetClosed || both.Source != handoff.SourceClosed {
		t.Errorf("%+v", both)
	}
	_, err = c.AwaitDrained(ctx, p, Sides{true, true})
	wantCode(t, err, handoff.CodeNotReady)
	lend(t, c, e, plan("next", 1, 1)) // a quarter of the segment may be quarantined, no more is
	if got, err := c.AwaitDrained(ctx, p, Sides{Target: true}); err != nil || !got.Drained {
		t.Errorf("%+v %v", got, err)
	}
	r.Done(1)
	if got, err := c.AwaitDrained(ctx, p, Sides{true, true}); err != nil || !got.Drained {
		t.Errorf("%+v %v", got, err)
	}
	r.Destroy()
}

// A read that may not begin as a whole begins not at all.
func TestAReadBeginsWholeOrNotAtAll(t *testing.T) {
	_, c, e, p := attached(t)
	g, err := c.OpenSource(e, SourceSpec{Plan: p, Shape: shape, Offsets: offsets()})
	check(t, err)
	check(t, c.Announce(e, p.Attempt, []uint32{0, 1}, []uint32{0, 0}))
	r := admit(t, c, p, g)
	posted := func() int {
		_, sources := c.Records(1)
		return sources[0].Posted
	}
	wantCode(t, r.Begin([]uint32{0, 1, 3}), handoff.CodeNotReady)
	wantCode(t, r.Begin([]uint32{0, 4}), handoff.CodeDenied)
	if posted() != 0 {
		t.Fatal(posted(), "reads are posted")
	}
	<-r.Changed()
	check(t, c.Announce(e, p.Attempt, []uint32{2, 3}, []uint32{0, 0}))
	select {
	case <-r.Changed():
	default:
		t.Fatal("the reader was not told of more")
	}
	if runs, rest := r.News(); rest || !slices.Equal(runs, []wire.Run{{First: 0, Count: 2}, {First: 2, Count: 2}}) {
		t.Fatal(runs, rest)
	}
	if _, ok := r.Sealed(); ok {
		t.Fatal("sealed")
	}
	check(t, c.Seal(e, p.Attempt))
	select {
	case <-r.Changed():
	default:
		t.Fatal("the reader was not told of the seal")
	}
	check(t, r.Begin(all))
	if posted() != 4 {
		t.Fatal(posted(), "reads are posted")
	}
	var buffer []byte
	views, err := r.Views(all, nil, &buffer)
	check(t, err)
	for i, v := range views {
		if &v[0] != &r.View(uint32(i))[0] || len(v) != int(r.Length(uint32(i))) {
			t.Errorf("piece %d was copied", i)
		}
	}
	if r.Length(4) != 0 || buffer != nil {
		t.Error("a piece that there is not has bytes")
	}
	r.Done(4)
	r.Destroy()
}

// Connections that joined a reading end before it is destroyed, and are bounded.
func TestADestroyedReadingWaitsForThoseThatJoined(t *testing.T) {
	_, c, e, p := attached(t)
	g := lend(t, c, e, p)
	_, _, err := c.Join(p.Attempt, g.Capability, Holder{"n1", 1})
	wantCode(t, err, handoff.CodeNotReady)
	r := admit(t, c, p, g)
	var leaves []func()
	for range MaxJoined {
		_, leave, err := c.Join(p.Attempt, g.Capability, Holder{"n1", 1})
		check(t, err)
		leaves = append(leaves, leave)
	}
	_, _, err = c.Join(p.Attempt, g.Capability, Holder{"n1", 1})
	wantCode(t, err, handoff.CodeCapacity)
	_, _, err = c.Join(p.Attempt, g.Capability, Holder{"n1", 2})
	wantCode(t, err, handoff.CodeStaleIncarnation)
	for _, leave := range leaves[1:] {
		leave()
	}
	gone := make(chan struct{})
	go func() { r.Destroy(); close(gone) }()
	<-r.Stopped()
	_, _, err = c.Join(p.Attempt, g.Capability, Holder{"n1", 1})
	wantCode(t, err, handoff.CodeNotReady)
	select {
	case <-gone:
		t.Fatal("destroyed while another connection reads")
	case <-time.After(10 * time.Millisecond):
	}
	leaves[0]()
	<-gone
	admit(t, c, p, g).Destroy()
}

// device is memory that is not mapped and whose copies can fail without an end.
type device struct {
	segment.Memory
	broken bool
}

func (d *device) View(segment.Extent) []byte { return nil }

func (d *device) Read(from []segment.Extent, into [][]byte) error {
	if d.broken {
		return &segment.NotQuiescent{}
	}
	return d.Memory.Read(from, into)
}

func (d *device) Write(to []segment.Extent, from [][]byte) error {
	if d.broken {
		return &segment.NotQuiescent{}
	}
	return d.Memory.Write(to, from)
}

// Memory that a failed copy may still touch is never called drained, and people
// are told.
func TestACopyThatMayStillRunPinsItsMemoryForEver(t *testing.T) {
	var stuck []string
	b, c := newBench(t), core(t, 1, func(c *Config) {
		c.Trace = func(e Event) {
			if e.Name == "stuck" {
				stuck = append(stuck, e.Machine)
			}
		}
	})
	e := b.engine("e")
	d := &device{Memory: e.Segment.Memory}
	e.Segment = &segment.Segment{Memory: d}
	attach(t, c, e)
	for _, broken := range []bool{false, true} {
		d.broken = broken
		p := plan("h", 1, 1)
		if broken {
			p.Attempt.Handoff = "broken"
		}
		l, _, err := c.Land(p, openTarget(t, c, e, p, uint32(len(p.Attempt.Handoff))))
		check(t, err)
		r := admit(t, c, p, lend(t, c, e, p))
		check(t, l.Post(1, 1))
		if err := l.Write([]segment.Extent{l.Extent(1, 8, 4)}, [][]byte{{1, 2, 3, 4}}); (err != nil) != broken {
			t.Fatal("written, broken:", broken)
		}
		check(t, r.Begin([]uint32{1}))
		var buffer []byte
		views, err := r.Views([]uint32{1}, nil, &buffer)
		if (err != nil) != broken || !broken && !slices.Equal(views[0][8:12], []byte{1, 2, 3, 4}) {
			t.Fatal("read, broken:", broken)
		}
		l.Failed(1)
		l.Destroyed()
		l.End()
		r.Done(1)
		r.Destroy()
		_, err = c.Undo(p, Sides{true, true})
		check(t, err)
		for _, err := range []error{c.FreedTarget(e, p.Attempt), c.FreedSource(e, p.Attempt)} {
			if (err != nil) != broken {
				t.Error("freed, broken:", broken, handoff.CodeOf(err))
			}
		}
	}
	if !slices.Equal(stuck, []string{"target", "source"}) {
		t.Error("told:", stuck)
	}
	if s := c.Stats(); s.Gathering <= 0 || s.Scattering <= 0 {
		t.Errorf("copies take no time: %s, %s", s.Gathering, s.Scattering)
	}
}

// What an engine's page shows of the life before is told, marked and listed.
func TestWhatALifeAdoptsIsTold(t *testing.T) {
	b, c, e, _ := attached(t)
	p, other := plan("h", 1, 1), plan("open", 1, 1)
	token := openTarget(t, c, e, p, 3)
	validated(t, c, p, token)
	_, err := c.Commit(p, token, 0)
	check(t, err)
	openTarget(t, c, e, other, 4)
	var told []string
	next := core(t, 2, func(c *Config) { c.Trace = func(e Event) { told = append(told, e.Name+" "+e.To) } })
	fresh := b.engine("e")
	attach(t, next, fresh)
	if !slices.Equal(told, []string{"adopt committed"}) || fresh.Page.State(4) != flagpage.Over || fresh.Page.State(3) != flagpage.Visible {
		t.Errorf("%v, slots %d %d", told, fresh.Page.State(3), fresh.Page.State(4))
	}
	names := []handoff.EngineID{"a", "b", "c", "d", "e"}
	for _, id := range names[:4] {
		attach(t, next, newBench(t).engine(id))
	}
	for range 8 { // a map's order differs
		if got := next.Engines(); !slices.Equal(got, names) {
			t.Fatal(got)
		}
	}
	lost, err := next.Renew([]handoff.Attempt{p.Attempt, other.Attempt}, []handoff.Attempt{p.Attempt}, 0, 0)
	check(t, err)
	if !slices.Equal(lost, []handoff.Attempt{other.Attempt, p.Attempt}) {
		t.Error(lost)
	}
}

// A block that is pinned for one tenant is another's only after it was let go (S16).
func TestABlockIsOneTenantsAtATime(t *testing.T) {
	crossed := 0
	_, c, e, _ := attached(t, func(c *Config) {
		c.Trace = func(e Event) {
			if e.Name == EventCrossing {
				crossed++
			}
		}
	})
	open := func(name handoff.HandoffID, tenant byte) error {
		_, err := c.OpenSource(e, SourceSpec{Plan: plan(name, 1, 1), Shape: shape, Offsets: offsets(), Blocks: []uint32{7}, Tenant: handoff.Digest{tenant}})
		return err
	}
	check(t, open("a", 1))
	check(t, open("b", 1)) // a shared prefix
	for _, name := range []handoff.HandoffID{"a", "b"} {
		wantCode(t, open("c", 2), handoff.CodeDenied)
		_, err := c.Release(plan(name, 1, 1), Sides{Source: true})
		check(t, err)
	}
	if crossed != 2 || c.Stats().PinnedBlocks != 0 {
		t.Errorf("%d crossings told, %d blocks pinned", crossed, c.Stats().PinnedBlocks)
	}
	check(t, open("c", 2))
}

// A higher epoch ends the pull and the place of a lower one, and tells its engine.
func TestAHigherEpochEndsAPullOfALowerOne(t *testing.T) {
	b, c, e, _ := attached(t)
	older, newer := plan("h", 1, 1), plan("h", 2, 1)
	l, _, err := c.Land(older, openTarget(t, c, e, older, 0))
	check(t, err)
	openTarget(t, c, e, newer, 1)
	<-l.Stopped()
	wantCode(t, l.Why(), handoff.CodeStaleEpoch)
	l.End()
	if e.Page.State(0) != flagpage.Over || !b.saw(func(n Notice) bool { return n.Attempt == older.Attempt && n.Target == handoff.TargetClosed }) {
		t.Errorf("slot 0 is %d, told %+v", e.Page.State(0), b.notices)
	}
	check(t, c.FreedTarget(e, older.Attempt))
}

// Landed bytes are read again while the target lives, from whatever memory.
func TestLandedBytesAreReadAgain(t *testing.T) {
	for _, mapped := range []bool{true, false} {
		b, c := newBench(t), core(t, 1)
		e := b.engine("e")
		copy(e.Segment.View(segment.Extent{At: 3 * blockBytes, Length: 4}), "what")
		want := wire.MoreChecksum(0, e.Segment.View(segment.Extent{At: 3 * blockBytes, Length: blockBytes}))
		if !mapped {
			e.Segment = &segment.Segment{Memory: &device{Memory: e.Segment.Memory}}
		}
		attach(t, c, e)
		p := plan("h", 1, 1)
		l, _, err := c.Land(p, openTarget(t, c, e, p, 0))
		check(t, err)
		if got, err := l.Reread(1); err != nil || got != want {
			t.Errorf("mapped %v: %x, %v; want %x", mapped, got, err, want)
		}
		_, err = c.Release(p, Sides{Target: true})
		check(t, err)
		_, err = l.Reread(1)
		wantCode(t, err, handoff.CodeClosed)
		l.End()
	}
}

// A reading tells its source's state to the end, and after it.
func TestAReadingTellsItsSourcesState(t *testing.T) {
	_, c, e, p := attached(t)
	r := admit(t, c, p, lend(t, c, e, p))
	wants := func(want handoff.SourceState) {
		t.Helper()
		if got := r.State(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	wants(handoff.SourceOpened)
	check(t, c.Seal(e, p.Attempt))
	wants(handoff.SourceSealed)
	if m, ok := r.Sealed(); !ok || m.Manifest.IsZero() || len(m.Digests) != 4 {
		t.Errorf("sealed: %+v, %v", m, ok)
	}
	check(t, r.Finish())
	wants(handoff.SourceClosed)
	r.Destroy()
	check(t, c.FreedSource(e, p.Attempt))
	passes(c, Retention)
	wants(handoff.SourceUnknown)
	if _, ok := r.Sealed(); ok {
		t.Error("what is forgotten is sealed")
	}
	wantCode(t, r.Question(wire.Question{}), handoff.CodeClosed)
}

// What an engine vouches for is a set of some pieces; bytes of a piece lie inside of it.
func TestHeldPiecesAreAPartOfTheWhole(t *testing.T) {
	_, c, e, _ := attached(t)
	for _, wrong := range [][]uint32{{1, 0}, {1, 1}, {4}, {0, 1, 2, 3}} {
		_, _, err := c.OpenTarget(e, TargetSpec{Plan: plan("h", 1, 1), Shape: shape, Offsets: offsets(), Held: wrong})
		wantCode(t, err, handoff.CodeInvalid)
	}
	token, _, err := c.OpenTarget(e, TargetSpec{Plan: plan("h", 1, 1), Shape: shape, Offsets: offsets(), Held: []uint32{0, 2}})
	check(t, err)
	_, _, err = c.OpenTarget(e, TargetSpec{Plan: plan("h", 1, 1), Shape: shape, Offsets: offsets(), Held: []uint32{0, 1}})
	wantCode(t, err, handoff.CodeConflict)
	l, _, err := c.Land(plan("h", 1, 1), token)
	check(t, err)
	if !slices.Equal(l.Held(), []uint32{0, 2}) {
		t.Error(l.Held())
	}
	for _, x := range [][2]uint32{{blockBytes, 1}, {blockBytes + 1, 0}, {1, blockBytes}, {8, ^uint32(0)}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d bytes at %d of a piece of %d", x[1], x[0], blockBytes)
				}
			}()
			l.Extent(0, x[0], x[1])
		}()
	}
	if got := l.Extent(1, 8, blockBytes-8); got != (segment.Extent{At: 3*blockBytes + 8, Length: blockBytes - 8}) {
		t.Errorf("%+v", got)
	}
	l.End()
}

// released is a source whose release came while a read of all of it is posted.
func released(t *testing.T) (b *bench, c *Core, e *Engine, p handoff.Plan, r *Reading) {
	t.Helper()
	b, c, e, p = attached(t)
	r = admit(t, c, p, lend(t, c, e, p))
	check(t, r.Begin(all))
	_, err := c.Release(p, Sides{Source: true})
	check(t, err)
	return b, c, e, p, r
}

// A connection that is gone with reads posted drains what is over: nothing of it
// looks at the memory any more.
func TestAConnectionThatIsGoneDrainsItsSource(t *testing.T) {
	b, c, e, p, r := released(t)
	wantCode(t, c.FreedSource(e, p.Attempt), handoff.CodeNotReady)
	r.Destroy()
	if !b.saw(func(n Notice) bool { return n.IsSource && n.Drained }) {
		t.Errorf("%+v", b.notices)
	}
	check(t, c.FreedSource(e, p.Attempt))
}

// A validated read is asked for by the target of the plan, while its connection is
// the one that reads (rule 12).
func TestTheQuestionIsOfThePlansTarget(t *testing.T) {
	_, c, e, p := attached(t)
	g := lend(t, c, e, p)
	r := admit(t, c, p, g)
	check(t, c.Seal(e, p.Attempt))
	m, _ := r.Sealed()
	right := wire.Question{Token: handoff.Token{Attempt: p.Attempt, Node: "n1", Incarnation: 1, Generation: 1}, Grant: g.Grant, Manifest: m.Manifest, Nonce: 5, Incarnation: 1}
	for name, change := range map[string]func(*wire.Question){
		"another attempt": func(q *wire.Question) { q.Token.Attempt.Epoch = 2 },
		"another daemon":  func(q *wire.Question) { q.Token.Node = "n2" },
		"another life":    func(q *wire.Question) { q.Token.Incarnation = 2 },
	} {
		q := right
		change(&q)
		if err := r.Question(q); handoff.CodeOf(err) != handoff.CodeDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
	check(t, r.Question(right))
	next := make(chan *Reading)
	go func() {
		r, err := c.Admit(context.Background(), p.Attempt, g.Capability, Holder{"n1", 1})
		if err != nil {
			t.Error(err)
		}
		next <- r
	}()
	<-r.Stopped()
	wantCode(t, r.Question(right), handoff.CodeUnavailable) // a newer connection reads
	r.Destroy()
	second := <-next
	check(t, second.Finish())
	wantCode(t, second.Question(right), handoff.CodeClosed)
	second.Destroy()
}

// Whoever waits for a source's drain is woken by its last read's end.
func TestTheLastReadsEndWakesWhoWaitsForTheDrain(t *testing.T) {
	_, c, _, p, r := released(t)
	_, wait, err := c.drainState(p, Sides{Source: true})
	check(t, err)
	r.Done(4)
	<-wait
	got, err := c.AwaitDrained(context.Background(), p, Sides{Source: true})
	if check(t, err); !got.Drained {
		t.Errorf("%+v", got)
	}
	r.Destroy()
}
