package fence

import (
	"context"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/internal/flagpage"
	"github.com/surehand/surehand/transferd/internal/native"
	"github.com/surehand/surehand/transferd/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	blockBytes = 4096
	blockCount = 4
	segBytes   = 64 << 10
)

var shape = handoff.Shape{Revision: "m@1", Layout: handoff.Digest{1}, Tokens: 4,
	Groups: []handoff.Group{{Name: "full", Layers: 1, Blocks: blockCount, BlockBytes: blockBytes}}}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, c handoff.Code) {
	t.Helper()
	if err == nil || handoff.CodeOf(err) != c {
		t.Fatalf("got %v, want %s", err, c)
	}
}

// bench is one engine's memory, which outlives the cores that it attaches to.
type bench struct {
	t       *testing.T
	file    *os.File
	flags   []byte
	notices []Notice
}

func newBench(t *testing.T) *bench {
	f, err := native.Memfd("segment", segBytes)
	check(t, err)
	t.Cleanup(func() { check(t, f.Close()) })
	return &bench{t: t, file: f, flags: make([]byte, 8*flagpage.SlotBytes)}
}

func (b *bench) engine(id handoff.EngineID) *Engine {
	b.t.Helper()
	s, err := new(segment.Book).Map(b.file, segBytes)
	check(b.t, err)
	return &Engine{ID: id, Revision: shape.Revision, Layout: shape.Layout, Segment: s, Page: flagpage.New(b.flags, 8),
		Notify: func(n Notice) { b.notices = append(b.notices, n) }, Close: s.Close}
}

func core(t *testing.T, life handoff.Incarnation, change ...func(*Config)) *Core {
	cfg := Config{Node: "n1", Incarnation: life}
	for _, c := range change {
		c(&cfg)
	}
	told, watch := map[handoff.Code]uint64{}, cfg.Trace
	cfg.Trace = func(e Event) {
		if e.Code != handoff.CodeNone && e.Machine != "engine" && e.Name != "expire" && e.Name != "stuck" {
			told[e.Code]++
		}
		if watch != nil {
			watch(e)
		}
	}
	c := New(cfg)
	t.Cleanup(func() {
		if refused := c.Stats().Refusals; !maps.Equal(told, refused) {
			t.Errorf("refused was %v, told of %v", refused, told)
		}
		check(t, c.Unmap())
	})
	return c
}

func attach(t *testing.T, c *Core, e *Engine) Attached {
	t.Helper()
	a, err := c.Attach(e)
	check(t, err)
	return a
}

// attached is an engine that attached to a core in its first life, and a plan of
// which it is both sides.
func attached(t *testing.T, change ...func(*Config)) (*bench, *Core, *Engine, handoff.Plan) {
	t.Helper()
	b, c := newBench(t), core(t, 1, change...)
	e := b.engine("e")
	attach(t, c, e)
	return b, c, e, plan("h", 1, 1)
}

// passes has so much time be over for a core: no test's own pace ends a lease, or keeps it.
func passes(c *Core, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start = c.start.Add(-d)
}

func plan(name handoff.HandoffID, epoch handoff.Epoch, life handoff.Incarnation) handoff.Plan {
	return handoff.Plan{Attempt: handoff.Attempt{Handoff: name, Epoch: epoch, Nonce: 9},
		P: handoff.Seat{Engine: "e", Node: "n1", Incarnation: life}, D: handoff.Seat{Engine: "e", Node: "n1", Incarnation: life}, BodyDigest: handoff.Digest{1}}
}

func offsets() []uint64 { return []uint64{0, 3 * blockBytes, blockBytes, 2 * blockBytes} }

func openTarget(t *testing.T, c *Core, e *Engine, p handoff.Plan, slot uint32) handoff.Token {
	t.Helper()
	token, _, err := c.OpenTarget(e, TargetSpec{Plan: p, Shape: shape, Offsets: offsets(), Slot: slot})
	check(t, err)
	return token
}

// validated takes a target all the way to the yes.
func validated(t *testing.T, c *Core, p handoff.Plan, token handoff.Token) {
	t.Helper()
	l, _, err := c.Land(p, token)
	check(t, err)
	pieces := []uint32{0, 1, 2, 3}
	check(t, l.Post(len(pieces), 1))
	check(t, l.Landed(pieces, 0, shape.Bytes()))
	check(t, l.Verify(handoff.Digest{5}))
	check(t, l.Ask(77, 1))
	check(t, l.Yes(77, 1, handoff.Digest{5}, Pulled{Bytes: shape.Bytes()}))
	l.End()
}

func (b *bench) saw(f func(Notice) bool) bool { return slices.ContainsFunc(b.notices, f) }

func TestPostedBytesQuarantineAClosedTargetUntilTheirConnectionIsDestroyed(t *testing.T) {
	b, c, e, p := attached(t, func(c *Config) { c.QuarantineMax = shape.Bytes() - 1 })
	token := openTarget(t, c, e, p, 0)
	l, _, err := c.Land(p, token)
	check(t, err)
	check(t, l.Post(2, 1))
	closing, err := c.Undo(p, Sides{Target: true})
	check(t, err)
	if closing.Drained || closing.Target != handoff.TargetClosed {
		t.Fatalf("%+v", closing)
	}
	select {
	case <-l.Stopped():
	default:
		t.Fatal("the pull was not told")
	}
	wantCode(t, c.FreedTarget(e, p.Attempt), handoff.CodeNotReady)
	if s := c.Stats(); s.QuarantinedBytes != shape.Bytes() || s.TargetsQuarantined != 1 {
		t.Fatalf("%+v", s)
	}
	_, _, err = c.OpenTarget(e, TargetSpec{Plan: plan("next", 1, 1), Shape: shape, Offsets: offsets(), Slot: 1})
	wantCode(t, err, handoff.CodeCapacity) // the quarantine is full
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err = c.AwaitDrained(ctx, p, Sides{Target: true})
	wantCode(t, err, handoff.CodeNotReady)
	wantCode(t, l.Post(1, 1), handoff.CodeClosed)

	l.Destroyed()
	l.End()
	if !b.saw(func(n Notice) bool { return n.Drained && n.Target == handoff.TargetUnknown }) {
		t.Fatalf("%+v", b.notices)
	}
	_, err = c.AwaitDrained(context.Background(), p, Sides{Target: true})
	check(t, err)
	check(t, c.FreedTarget(e, p.Attempt))
	if s := c.Stats(); s.QuarantinedBytes != 0 {
		t.Fatalf("%+v", s)
	}
	openTarget(t, c, e, plan("next", 1, 1), 1)
}

func TestADeadEnginesMemoryIsUnmappedOnlyWhenNothingCanTouchIt(t *testing.T) {
	b, c := newBench(t), core(t, 1)
	e := b.engine("e")
	unmapped := false
	inner := e.Close
	e.Close = func() error { unmapped = true; return inner() }
	attach(t, c, e)
	p := plan("h", 1, 1)
	l, _, err := c.Land(p, openTarget(t, c, e, p, 0))
	check(t, err)
	check(t, l.Post(1, 1))
	c.Detach(e)
	if unmapped {
		t.Fatal("unmapped under a posted write")
	}
	again := b.engine("e")
	_, err = c.Attach(again)
	wantCode(t, err, handoff.CodeNotReady)
	l.Destroyed()
	l.End()
	if !unmapped {
		t.Fatal("still mapped")
	}
	attach(t, c, again)
}

func TestACommitSurvivesTwoLivesAndEndsByItsLease(t *testing.T) {
	b, c, e, _ := attached(t)
	p, other := plan("h", 1, 1), plan("open", 1, 1)
	token := openTarget(t, c, e, p, 3)
	openTarget(t, c, e, other, 4)
	validated(t, c, p, token)
	_, err := c.Commit(p, token, 0)
	check(t, err)
	for life := handoff.Incarnation(2); life <= 3; life++ {
		c = core(t, life)
		e = b.engine("e")
		_, err = c.Commit(p, token, 0)
		wantCode(t, err, handoff.CodeUnavailable)
		_, err = c.Undo(p, Sides{Target: true})
		wantCode(t, err, handoff.CodeUnavailable)
		a := attach(t, c, e)
		if !slices.Equal(a.Adopted, []handoff.Attempt{p.Attempt}) || !slices.Equal(a.Closed, []handoff.Attempt{other.Attempt}) {
			t.Fatalf("life %d: %+v", life, a)
		}
		ans, err := c.Commit(p, token, 0)
		check(t, err)
		if ans.State != handoff.TargetCommitted || ans.Token != token {
			t.Fatalf("%+v", ans)
		}
		next := openTarget(t, c, e, plan("later", 1, life), 5)
		if next.Generation <= token.Generation {
			t.Fatalf("generation %d again, the adopted one has %d", next.Generation, token.Generation)
		}
		_, err = c.Undo(plan("later", 1, life), Sides{Target: true})
		check(t, err)
		check(t, c.FreedTarget(e, plan("later", 1, life).Attempt))
	}
	passes(c, c.Lease())
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx)
	}()
	drained, err := c.AwaitDrained(ctx, p, Sides{Target: true})
	check(t, err)
	if drained.Target != handoff.TargetAborted || e.Page.State(3) != flagpage.Over {
		t.Fatalf("%+v, slot %d", drained, e.Page.State(3))
	}
	stop()
	<-done
}

func TestAFlagPageThatContradictsThisLifeIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(*bench, *flagpage.Page){
		"damaged": func(b *bench, _ *flagpage.Page) { b.flags[3*flagpage.SlotBytes+50] ^= 1 },
		"the future": func(_ *bench, p *flagpage.Page) {
			e, _ := p.Read(3)
			e.Incarnation = 2
			check(t, p.Write(3, e))
			p.Set(3, flagpage.Visible)
		},
		"twice": func(_ *bench, p *flagpage.Page) {
			e, _ := p.Read(3)
			check(t, p.Write(4, e))
			p.Set(4, flagpage.Visible)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, c := newBench(t), core(t, 1)
			e := b.engine("e")
			attach(t, c, e)
			p := plan("h", 1, 1)
			token := openTarget(t, c, e, p, 3)
			validated(t, c, p, token)
			_, err := c.Commit(p, token, 0)
			check(t, err)
			spoil(b, e.Page)
			next := b.engine("e")
			_, err = core(t, 2).Attach(next)
			wantCode(t, err, handoff.CodeInternal)
			check(t, next.Close())
		})
	}
}

func TestAPullWaitsForItsSourceToOpen(t *testing.T) {
	_, c, e, p := attached(t, func(c *Config) { c.Lease = 5 * time.Second })
	// The grant is known before the open is answered: both sides count from one.
	token, err := c.mint(SourceSpec{Plan: p, Shape: shape}, 1)
	check(t, err)
	admitted := make(chan error, 1)
	var r *Reading
	go func() {
		var err error
		r, err = c.Admit(context.Background(), p.Attempt, token, Holder{"n1", 1})
		admitted <- err
	}()
	for waiting := false; !waiting; {
		c.enter()
		waiting = len(c.arrivals) == 1
		c.leave()
	}
	_, err = c.OpenSource(e, SourceSpec{Plan: p, Shape: shape, Offsets: offsets()})
	check(t, err)
	check(t, <-admitted)
	r.Destroy()
	if len(c.arrivals) != 0 {
		t.Fatal("still waiting")
	}
	short := core(t, 1, func(c *Config) { c.Lease = 50 * time.Millisecond })
	token, err = short.mint(SourceSpec{Plan: p, Shape: shape}, 1)
	check(t, err)
	_, err = short.Admit(context.Background(), p.Attempt, token, Holder{"n1", 1})
	wantCode(t, err, handoff.CodeNotReady)
	if len(short.arrivals) != 0 {
		t.Fatal("still waiting")
	}
}

func TestASecondConnectionTakesTheSourceOverFromTheFirst(t *testing.T) {
	_, c, e, p := attached(t)
	g, err := c.OpenSource(e, SourceSpec{Plan: p, Shape: shape, Offsets: offsets(), Blocks: []uint32{1, 2}})
	check(t, err)
	check(t, c.Announce(e, p.Attempt, []uint32{0, 1, 2, 3}, []uint32{0, 0, 0, 0}))
	first, err := c.Admit(context.Background(), p.Attempt, g.Capability, Holder{"n1", 1})
	check(t, err)
	err = first.Begin([]uint32{0, 1})
	check(t, err)
	taken := make(chan *Reading, 1)
	go func() {
		r, err := c.Admit(context.Background(), p.Attempt, g.Capability, Holder{"n1", 1})
		if err != nil {
			t.Error(err)
		}
		taken <- r
	}()
	<-first.Stopped()
	err = first.Begin([]uint32{2})
	wantCode(t, err, handoff.CodeClosed)
	select {
	case <-taken:
		t.Fatal("two connections read one grant")
	default:
	}
	first.Destroy()
	second := <-taken
	if runs, _ := second.News(); !slices.Equal(runs, []wire.Run{{First: 0, Count: 4}}) {
		t.Fatal(runs)
	}
	check(t, second.Begin([]uint32{1}))
	var buffer []byte
	views, err := second.Views([]uint32{1}, nil, &buffer)
	check(t, err)
	if len(views) != 1 || len(views[0]) != blockBytes {
		t.Fatal(len(views))
	}
	closing, err := c.Release(p, Sides{Source: true})
	check(t, err)
	if closing.Drained || c.Stats().PinnedBlocks != 2 {
		t.Fatalf("%+v", closing)
	}
	second.Done(1)
	if closing, err = c.Release(p, Sides{Source: true}); err != nil || !closing.Drained || c.Stats().PinnedBlocks != 0 {
		t.Fatalf("%+v %v", closing, err)
	}
	second.Destroy()
}

func TestARecordIsForgottenOnlyAfterItsRetention(t *testing.T) {
	_, c, e, _ := attached(t)
	open, tomb := plan("open", 1, 1), plan("tomb", 1, 1)
	openTarget(t, c, e, open, 0)
	for _, p := range []handoff.Plan{open, tomb} {
		_, err := c.Undo(p, Sides{Target: true, Source: true})
		check(t, err)
	}
	check(t, c.FreedTarget(e, open.Attempt))
	if n := c.Stats().Tombstones; n != 4 {
		t.Fatal(n)
	}
	_, _, err := c.OpenTarget(e, TargetSpec{Plan: tomb, Shape: shape, Offsets: offsets()})
	wantCode(t, err, handoff.CodeClosed)
	passes(c, Retention)
	if n := c.Stats().Tombstones; n > 0 {
		t.Fatalf("%d are never forgotten", n)
	}
}

func TestAnUnknownAttemptIsNotCalledLostWhileAnEngineIsStillMissing(t *testing.T) {
	b, c := newBench(t), core(t, 2, func(c *Config) { c.Awaited = []handoff.EngineID{"e", "f"} })
	attach(t, c, b.engine("e"))
	a := plan("h", 1, 1).Attempt
	_, err := c.Renew([]handoff.Attempt{a}, nil, 0, 0)
	wantCode(t, err, handoff.CodeUnavailable)
	attach(t, c, newBench(t).engine("f"))
	lost, err := c.Renew([]handoff.Attempt{a}, nil, 0, 0)
	check(t, err)
	if len(lost) != 1 {
		t.Fatal(lost)
	}
}

func TestADrainingDaemonOpensNothing(t *testing.T) {
	_, c, e, _ := attached(t)
	c.Drain()
	_, _, err := c.OpenTarget(e, TargetSpec{Plan: plan("h", 1, 1), Shape: shape, Offsets: offsets()})
	wantCode(t, err, handoff.CodeUnavailable)
	if c.IsReady() {
		t.Fatal("ready")
	}
}

func TestAnAttemptIsBoundToOnePlanAndOneMemory(t *testing.T) {
	_, c, e, p := attached(t)
	token := openTarget(t, c, e, p, 0)
	other := p
	other.BodyDigest = handoff.Digest{2}
	_, err := c.Undo(other, Sides{Target: true})
	wantCode(t, err, handoff.CodeConflict)
	_, err = c.Commit(other, token, 0)
	wantCode(t, err, handoff.CodeConflict)
	moved := offsets()
	moved[0], moved[1] = moved[1], moved[0]
	_, _, err = c.OpenTarget(e, TargetSpec{Plan: p, Shape: shape, Offsets: moved})
	wantCode(t, err, handoff.CodeConflict)
	_, _, err = c.OpenTarget(e, TargetSpec{Plan: plan("i", 1, 1), Shape: shape, Offsets: offsets()})
	wantCode(t, err, handoff.CodeConflict) // the flag slot is taken
	_, _, err = c.OpenTarget(e, TargetSpec{Plan: plan("i", 1, 1), Shape: shape, Offsets: offsets(), Slot: 8})
	wantCode(t, err, handoff.CodeInvalid)
	wrong := token
	wrong.Generation++
	_, _, err = c.Land(p, wrong)
	wantCode(t, err, handoff.CodeStaleToken)
	elsewhere := plan("j", 1, 1)
	elsewhere.D.Engine = "f"
	_, _, err = c.OpenTarget(e, TargetSpec{Plan: elsewhere, Shape: shape, Offsets: offsets(), Slot: 1})
	wantCode(t, err, handoff.CodeDenied)
}
