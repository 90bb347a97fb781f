package native

import (
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/surehand/surehand/activities/engine/vllm"
	"github.com/surehand/surehand/activities/engine/vllm/vllmtest"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
)

func TestARequestIsHandedOver(t *testing.T) {
	for _, style := range []vllm.Style{vllm.NIXLPull, vllm.NIXLPush} {
		r := newRig(t, []vllmtest.Options{{Push: style == vllm.NIXLPush}}, []vllmtest.Options{{Blocks: 64, BlockTokens: 16}}, func(c *Config) { c.Style = style })
		x := r.attempt(1, 0, 0)
		x.must(x.reserve, x.prefill, x.pull)
		x.attach()
		x.must(x.commit, x.commit) // a repeat has no second effect
		x.whole()
		if d := r.d[0].Seen(); d.Decodes != 1 || d.Locals != 0 || r.p[0].Seen().Prefills != 1 {
			t.Errorf("%s: %+v", style, d)
		}
		if x.counts.Direct != 0 || x.counts.Recomputed != 0 || x.counts.Completion != 3 {
			t.Errorf("%s: %+v", style, x.counts)
		}
		if id := r.d[0].Seen().RequestIDs[0]; id != "h1-e1" {
			t.Errorf("%s: D was asked as %q", style, id)
		}
		r.clean()
	}
}

func TestAnAnswerThatIsNoStreamIsHandedOver(t *testing.T) {
	r := pair(t)
	x := r.attempt(1, 0, 0)
	x.body = `{"model":"fake","prompt":"abc","max_tokens":2}`
	x.must(x.reserve, x.prefill, x.pull)
	x.attach()
	x.must(x.commit)
	if err := x.wait(); err != nil || !strings.Contains(x.got(), `" w0 w1"`) || x.finish != "length" {
		t.Error(x.got(), err)
	}
	r.clean()
}

func TestNoPrefillRunsWithoutRoomOnD(t *testing.T) {
	for name, c := range map[string]struct {
		d    vllmtest.Options
		do   func(*vllmtest.Engine)
		want handoff.Code
	}{
		"waiting":             {do: func(e *vllmtest.Engine) { e.Set(func(f *vllmtest.Faults) { f.Waiting = 9 }) }, want: handoff.CodeCapacity},
		"no free block":       {d: vllmtest.Options{Blocks: 64, BlockTokens: 16}, do: func(e *vllmtest.Engine) { e.Set(func(f *vllmtest.Faults) { f.Usage = 1 }) }, want: handoff.CodeCapacity},
		"none for the answer": {d: vllmtest.Options{Blocks: 4, BlockTokens: 4}, do: func(e *vllmtest.Engine) { e.Set(func(f *vllmtest.Faults) { f.Usage = .25 }) }, want: handoff.CodeCapacity}, // 10 + 3 tokens
		"other revision":      {d: vllmtest.Options{Root: "fake@r2"}, want: handoff.CodeMismatch},
		"other version":       {d: vllmtest.Options{Version: "0.33.0"}, want: handoff.CodeMismatch},
		"other model":         {d: vllmtest.Options{Model: "other"}, want: handoff.CodeMismatch},
		"dead":                {do: func(e *vllmtest.Engine) { e.Kill() }, want: handoff.CodeEngine},
		"metrics that fail":   {do: func(e *vllmtest.Engine) { e.Set(func(f *vllmtest.Faults) { f.MetricsStatus = 500 }) }, want: handoff.CodeEngine},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, []vllmtest.Options{{}}, []vllmtest.Options{c.d}, nil)
			x := r.attempt(1, 0, 0)
			if c.do != nil {
				c.do(r.d[0])
				r.eventually("the fleet has seen it", func() bool {
					_, err := x.d.fresh(t.Context())
					_, _, up := x.d.known()
					return err == nil || !up
				})
			}
			// Side by side, as the head start issues them.
			prefilled := make(chan error, 1)
			go func() { prefilled <- x.prefill() }()
			wants(t, "reserve", x.reserve(), c.want)
			wants(t, "prefill", <-prefilled, c.want)
			if n := r.p[0].Seen().Prefills; n != 0 {
				t.Errorf("%d prefills ran for nothing", n)
			}
			if ans, err := x.undo(false); err != nil || ans.Target != handoff.TargetClosed {
				t.Error(ans, err)
			}
			r.clean()
		})
	}
}

func TestDsLimitIsLearntFromItsRefusal(t *testing.T) {
	r := newRig(t, []vllmtest.Options{{}}, []vllmtest.Options{{MaxRunning: 1, RejectOver: true}}, nil)
	gate := make(chan struct{})
	r.d[0].Set(func(f *vllmtest.Faults) { f.RestGate = gate })
	first := r.attempt(1, 0, 0)
	first.must(first.reserve, first.prefill, first.pull)
	first.attach()
	first.must(first.commit)
	r.eventually("the first decodes", func() bool { return first.got() != "" })

	second := r.attempt(1, 0, 0)
	second.plan.Attempt.Handoff = "h2"
	second.must(second.reserve, second.prefill, second.pull)
	second.attach()
	second.must(second.commit)
	wants(t, "D is full", second.wait(), handoff.CodeCapacity)

	third := r.attempt(1, 0, 0)
	third.plan.Attempt.Handoff = "h3"
	wants(t, "third", third.reserve(), handoff.CodeCapacity)
	close(gate)
	first.whole()
	if n := r.p[0].Seen().Prefills; n != 2 {
		t.Errorf("%d prefills", n)
	}
	third.undo(true)
	r.clean()
}

// museum V-01
func TestDIsNeverAskedAfterOurLease(t *testing.T) {
	r := pair(t)
	x := r.attempt(1, 0, 0)
	x.must(x.reserve, x.prefill, x.pull)
	x.attach()
	x.after(r.caps.Lease) // P's own is over too: while that runs, D is made to fetch and drop
	r.p[0].Lapse()
	wants(t, "commit", x.commit(), handoff.CodeLease)
	wants(t, "reader", x.wait(), handoff.CodeClosed)
	wants(t, "a repeat", x.commit(), handoff.CodeLease)
	if n := r.d[0].Seen().Decodes; n != 0 || x.got() != "" {
		t.Errorf("%d decodes, %q", n, x.got())
	}
	if ans, err := x.undo(false); err != nil || ans.Target != handoff.TargetClosed || ans.Validated {
		t.Error("no proof that D was never asked:", ans, err)
	}
	r.clean()
}

// museum V-02: D answers 200 with another prompt's tokens.
func TestAHandoffDuringWhichPLetGoIsNeverDelivered(t *testing.T) {
	for name, fault := range map[string]func(r *rig){
		"its own lease lapsed": func(r *rig) { r.p[0].Lapse() },
		"another's lapsed":     func(r *rig) { r.p[0].Rise() },
		"P restarted":          func(r *rig) { r.p[0].Restart() },
		"P is silent":          func(r *rig) { r.p[0].Set(func(f *vllmtest.Faults) { f.MetricsStatus = 500 }) },
	} {
		t.Run(name, func(t *testing.T) {
			r := pair(t)
			gate := make(chan struct{})
			r.d[0].Set(func(f *vllmtest.Faults) { f.TokenGate = gate })
			x := r.attempt(1, 0, 0)
			x.must(x.reserve, x.prefill, x.pull)
			fault(r)
			x.attach()
			if err := x.commit(); err != nil {
				// P's death was seen in time: D was not even asked.
				wants(t, "commit", err, handoff.CodeEngine)
				wants(t, "reader", x.wait(), handoff.CodeClosed)
				r.clean()
				return
			}
			close(gate)
			wants(t, "reader", x.wait(), handoff.CodeNotValidated)
			if x.got() != "" {
				t.Errorf("delivered %q", x.got())
			}
			r.clean()
		})
	}
}

// P takes a word about a transfer that is over for a fetch of invalid blocks, counts
// it and logs an error: it hears of each once, from D or from its own timer.
func TestPIsNotToldTwiceOfOneTransfer(t *testing.T) {
	for name, c := range map[string]struct {
		fault func(r *rig)
		late  int // D's own fetch after the end
	}{
		"D fetched in time": {func(r *rig) { r.p[0].Rise() }, 0},
		"D fetched late":    {func(r *rig) { r.p[0].Lapse() }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := pair(t)
			gate := make(chan struct{})
			r.d[0].Set(func(f *vllmtest.Faults) { f.TokenGate = gate })
			x := r.attempt(1, 0, 0)
			x.must(x.reserve, x.prefill, x.pull)
			c.fault(r) // D is asked after it
			x.attach()
			x.must(x.commit)
			close(gate)
			wants(t, "reader", x.wait(), handoff.CodeNotValidated)
			r.clean()
			r.eventually("nobody tells P", func() bool { return len(r.owed()) == 0 })
			if n := r.p[0].Late(); n != c.late {
				t.Errorf("P counted %d fetches after the end, want %d", n, c.late)
			}
		})
	}
	t.Run("its timer ended it", func(t *testing.T) {
		r := newRig(t, []vllmtest.Options{{}}, []vllmtest.Options{{}}, func(c *Config) { c.Lease = 10 * time.Millisecond })
		r.p[0].Set(func(f *vllmtest.Faults) { f.AnswerDelay = 20 * time.Millisecond })
		x := r.attempt(1, 0, 0)
		x.must(x.reserve, x.prefill)
		r.p[0].Lapse()
		wants(t, "pull", x.pull(), handoff.CodeLease)
		r.clean()
		r.eventually("nobody tells P", func() bool { return len(r.owed()) == 0 })
		if n := r.p[0].Late(); n != 0 {
			t.Errorf("P counted %d fetches after the end", n)
		}
	})
}

// D keeps a stale fetch in its prefix cache, and has no need to fetch the next
// time: the same prompt must not find it there.
func TestAStaleFetchIsNotFoundAgainInDsPrefixCache(t *testing.T) {
	r := pair(t)
	gate := make(chan struct{})
	r.d[0].Set(func(f *vllmtest.Faults) { f.TokenGate = gate })
	x := r.attempt(1, 0, 0)
	x.must(x.reserve, x.prefill, x.pull)
	r.p[0].Lapse()
	x.attach()
	x.must(x.commit)
	close(gate)
	wants(t, "reader", x.wait(), handoff.CodeNotValidated)
	next := r.attempt(2, 0, 0)
	next.must(next.reserve, next.prefill, next.pull)
	next.attach()
	next.must(next.commit)
	next.whole()
	r.clean()
}

func TestALateFirstTokenIsGivenOnlyWhereDRenewsAndPCounts(t *testing.T) {
	for _, c := range []struct {
		style vllm.Style
		p     vllmtest.Options
		want  handoff.Code
	}{
		{vllm.NIXLPull, vllmtest.Options{}, handoff.CodeNone},
		{vllm.NIXLPull, vllmtest.Options{NoCounters: true}, handoff.CodeLease},
		{vllm.NIXLPush, vllmtest.Options{Push: true}, handoff.CodeLease},
	} {
		r := newRig(t, []vllmtest.Options{c.p}, []vllmtest.Options{{}}, func(f *Config) { f.Style = c.style })
		gate := make(chan struct{})
		r.d[0].Set(func(f *vllmtest.Faults) { f.TokenGate = gate })
		x := r.attempt(1, 0, 0)
		x.must(x.reserve, x.prefill, x.pull)
		x.attach()
		x.must(x.commit)
		x.after(r.caps.Own())
		close(gate)
		wants(t, string(c.style), x.wait(), c.want)
		if (c.want == handoff.CodeNone) != (x.got() != "") {
			t.Errorf("%s: delivered %q", c.style, x.got())
		}
		r.clean()
	}
}

// museum V-03
func TestAPrefillThatTransfersNothingIsRefusedOrCounted(t *testing.T) {
	r := pair(t)
	r.p[0].Set(func(f *vllmtest.Faults) { f.NoParams = true })
	x := r.attempt(1, 0, 0)
	x.must(x.reserve)
	wants(t, "prefill", x.prefill(), handoff.CodeMismatch)
	wants(t, "pull", x.pull(), handoff.CodeMismatch)
	if r.d[0].Seen().Decodes != 0 {
		t.Error("D was asked")
	}
	r.clean()

	r = newRig(t, []vllmtest.Options{{}}, []vllmtest.Options{{}}, func(c *Config) { c.Recompute = true })
	r.p[0].Set(func(f *vllmtest.Faults) { f.NoParams = true })
	x = r.attempt(1, 0, 0)
	x.must(x.reserve, x.prefill, x.pull)
	x.attach()
	x.must(x.commit)
	x.whole()
	var counted dto.Metric
	if err := r.metrics.recomputed.Write(&counted); err != nil {
		t.Fatal(err)
	}
	if n := counted.GetCounter().GetValue(); x.counts.Recomputed == 0 || r.d[0].Seen().Locals != 1 || n != 1 {
		t.Errorf("%+v, %g counted", x.counts, n)
	}
	r.clean()
}

func TestUndoBeforeTheDispatchProvesThatDWasNeverAsked(t *testing.T) {
	r := pair(t)
	x := r.attempt(1, 0, 0)
	x.must(x.reserve, x.prefill, x.pull)
	ans, err := x.undo(false)
	if err != nil || ans.Target != handoff.TargetClosed || ans.Source != handoff.SourceClosed || ans.Validated {
		t.Fatal(ans, err)
	}
	wants(t, "commit", x.commit(), handoff.CodeClosed)
	// What D is asked is to let P go, which takes a fetch the first time; not the request.
	if d := r.d[0].Seen(); d.Decodes != 1 || d.Rejected != 0 || !strings.Contains(string(d.Bodies[0]), `"max_tokens":1,`) {
		t.Errorf("%d decodes, %d rejected, asked %s", d.Decodes, d.Rejected, d.Bodies)
	}
	r.clean()

	// The undo that comes first leaves a tombstone (rule 7).
	y := r.attempt(2, 0, 0)
	if ans, err := y.undo(false); err != nil || ans.Target != handoff.TargetClosed {
		t.Fatal(ans, err)
	}
	wants(t, "reserve", y.reserve(), handoff.CodeClosed)
	wants(t, "prefill", y.prefill(), handoff.CodeClosed)
}

func TestUndoNeverTakesADispatchBack(t *testing.T) {
	r := pair(t)
	gate := make(chan struct{})
	r.d[0].Set(func(f *vllmtest.Faults) { f.TokenGate = gate })
	x := r.attempt(1, 0, 0)
	x.must(x.reserve, x.prefill, x.pull)
	x.attach()
	x.must(x.commit)
	ans, err := x.undo(false)
	if err != nil || ans.Target != handoff.TargetCommitted || !ans.Validated {
		t.Fatal(ans, err)
	}
	close(gate)
	x.whole()
	r.clean()
}

func TestAnotherLifeOfTheOrchestratorProvesNothing(t *testing.T) {
	r := pair(t)
	x := r.attempt(1, 0, 0)
	x.plan.D.Incarnation--
	wants(t, "reserve", x.reserve(), handoff.CodeStaleIncarnation)
	_, err := x.mover(x.d).Undo(t.Context(), x.plan, "op", client.Sides{Target: true})
	wants(t, "undo", err, handoff.CodeStaleIncarnation)
	wants(t, "commit", x.commit(), handoff.CodeStaleIncarnation)
}
