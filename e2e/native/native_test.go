package native

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/surehand/surehand/activities/engine/vllm/vllmtest"
	"github.com/surehand/surehand/contracts/handoff"
)

var one = []vllmtest.Options{{}}
var two = []vllmtest.Options{{}, {}}

func TestUnmodifiedEnginesServeThroughTheDurablePath(t *testing.T) {
	t.Parallel()
	w := newWorld(t, one, one)
	for _, body := range []string{streamed, wholly} {
		a := w.ask(body)
		w.whole(a)
		if out := w.history(a.handoff); out.Code != "" || !out.Committed || out.Attempt.Epoch != 1 {
			t.Errorf("%+v", out)
		}
	}
	if p, d := w.p[0].Seen(), w.d[0].Seen(); p.Prefills != 2 || d.Decodes != 2 || d.Locals != 0 {
		t.Errorf("%+v %+v", p, d)
	}
	w.rest()
}

// The headline: stock vLLM answers HTTP 200 with another prompt's tokens.
func TestStaleKVIsNeverDelivered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, one, one)
	gate := make(chan struct{})
	w.p[0].Set(func(f *vllmtest.Faults) { f.AnswerGate = gate })
	a := w.ask(streamed)
	w.eventually("P pins", func() bool { return w.p[0].Held() == 1 })
	w.p[0].Lapse() // P lets go and gives the blocks to others, while its answer is under way
	w.p[0].Set(func(f *vllmtest.Faults) { f.AnswerGate = nil })
	close(gate)
	w.whole(a)
	if out := w.history(a.handoff); out.Code != "" || out.Attempt.Epoch != 2 {
		t.Errorf("the history does not tell of another epoch: %+v", out)
	}
	if d := w.d[0].Seen(); d.Decodes != 2 {
		t.Errorf("D was asked %d times", d.Decodes)
	}
	w.rest()
}

func TestDIsNotAskedAfterOurLeaseAndTheErrorIsTyped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, []vllmtest.Options{{Lease: 100 * time.Millisecond}}, one, "--engine-lease", "100ms")
	w.p[0].Set(func(f *vllmtest.Faults) { f.AnswerDelay = 300 * time.Millisecond }) // longer, in every epoch
	a := w.ask(streamed)
	if code := w.refused(a); code != handoff.CodeLease.String() {
		t.Errorf("code %q", code)
	}
	if d := w.d[0].Seen(); d.Decodes != 0 {
		t.Errorf("D was asked %d times", d.Decodes)
	}
	w.rest()
}

func TestNoPrefillRunsForADThatIsFullDeadOrOther(t *testing.T) {
	t.Parallel()
	t.Run("full", func(t *testing.T) {
		w := newWorld(t, one, one, "--decode-concurrency", "1")
		gate := make(chan struct{})
		w.d[0].Set(func(f *vllmtest.Faults) { f.RestGate = gate })
		first := w.ask(streamed)
		w.eventually("the first decodes", func() bool { return strings.Contains(first.got(), "w0") })
		second := w.ask(streamed)
		w.eventually("the second waits", func() bool { return w.metric("surehand_native_waiting") == "1" })
		if n := w.p[0].Seen().Prefills; n != 1 {
			t.Errorf("%d prefills", n)
		}
		w.d[0].Set(func(f *vllmtest.Faults) { f.RestGate = nil })
		close(gate)
		w.whole(first)
		w.whole(second)
		w.rest()
	})
	t.Run("queueing others", func(t *testing.T) {
		w := newWorld(t, one, []vllmtest.Options{{Blocks: 100, BlockTokens: 16}})
		w.d[0].Set(func(f *vllmtest.Faults) { f.Waiting = 50 })
		w.eventually("the fleet knows", func() bool {
			a := w.ask(streamed)
			<-a.done
			return a.status == 429
		})
		before := w.p[0].Seen().Prefills
		if code := w.refused(w.ask(streamed)); code != handoff.CodeCapacity.String() {
			t.Errorf("code %q", code)
		}
		if n := w.p[0].Seen().Prefills - before; n != 0 {
			t.Errorf("%d prefills ran for nothing", n)
		}
		w.rest()
	})
	t.Run("dead", func(t *testing.T) {
		w := newWorld(t, one, one)
		w.d[0].Kill()
		w.eventually("not ready", func() bool { return w.get("/readyz") == 503 })
		w.refused(w.ask(streamed))
		if n := w.p[0].Seen().Prefills; n != 0 {
			t.Errorf("%d prefills ran for nothing", n)
		}
	})
}

func TestAPOrADThatBreaksCostsAnEpochNotTheRequest(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(w *world){
		"P answers 500":                    func(w *world) { w.p[0].Set(func(f *vllmtest.Faults) { f.PrefillStatus = 500 }) },
		"P gives nothing to fetch":         func(w *world) { w.p[0].Set(func(f *vllmtest.Faults) { f.NoParams = true }) },
		"D answers 500":                    func(w *world) { w.d[0].Set(func(f *vllmtest.Faults) { f.DecodeStatus = 500 }) },
		"D answers 503":                    func(w *world) { w.d[0].Set(func(f *vllmtest.Faults) { f.DecodeStatus = 503 }) },
		"D reports an error in its stream": func(w *world) { w.d[0].Set(func(f *vllmtest.Faults) { f.ErrorEvent = true }) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, two, two)
			fault(w)
			w.whole(w.ask(streamed, "X-Prefiller-Host-Port", strings.TrimPrefix(w.p[0].URL(), "http://"),
				"X-Surehand-Decode", strings.TrimPrefix(w.d[0].URL(), "http://")))
			w.rest()
		})
	}
}

// A request that an engine calls wrong is wrong at every other one: the client has the
// engine's own words, at once, and nothing is computed again.
func TestWhatAnEngineCallsWrongIsToldInItsWordsAndNotTriedAgain(t *testing.T) {
	t.Parallel()
	both := []string{streamed, wholly}
	for name, c := range map[string]struct {
		ps, ds []vllmtest.Options
		faults vllmtest.Faults
		words  string
		bodies []string
	}{
		"P":                {two, two, vllmtest.Faults{PrefillStatus: 400}, "injected", both},
		"one D":            {one, one, vllmtest.Faults{DecodeStatus: 400}, "max_tokens is too large", both},
		"D, in its stream": {one, one, vllmtest.Faults{EventStatus: 400}, "injected", []string{streamed}},
		"each D":           {two, two, vllmtest.Faults{DecodeStatus: 400}, "max_tokens is too large", both},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.ps, c.ds)
			for _, e := range slices.Concat(w.p, w.d) {
				e.Set(func(f *vllmtest.Faults) { *f = c.faults })
			}
			for i, body := range c.bodies {
				a := w.ask(body)
				<-a.done
				if a.status != http.StatusBadRequest || !strings.Contains(a.got(), c.words) {
					t.Errorf("%d %s", a.status, a.got())
				}
				runs := 0
				for _, p := range w.p {
					runs += p.Seen().Prefills
				}
				if runs != i+1 {
					t.Errorf("%d prefills", runs)
				}
			}
			w.rest()
		})
	}
}

func TestAClientThatLeavesStopsWhateverRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, one, one)
	for phase, drive := range map[string]func(f *vllmtest.Faults, gate chan struct{}) func() bool{
		"in P": func(f *vllmtest.Faults, gate chan struct{}) func() bool {
			f.PrefillGate = gate
			before := w.p[0].Seen().Prefills
			return func() bool { return w.p[0].Seen().Prefills > before }
		},
		"in the transfer": func(f *vllmtest.Faults, gate chan struct{}) func() bool {
			f.TokenGate = gate
			before := w.d[0].Seen().Decodes
			return func() bool { return w.d[0].Seen().Decodes > before }
		},
		"in the decode": func(f *vllmtest.Faults, gate chan struct{}) func() bool {
			f.RestGate = gate
			before := w.d[0].Seen().Decodes
			return func() bool { return w.d[0].Seen().Decodes > before }
		},
	} {
		gate := make(chan struct{})
		var there func() bool
		faults := vllmtest.Faults{}
		there = drive(&faults, gate)
		aborted := w.p[0].Seen().Aborted + w.d[0].Seen().Aborted
		w.p[0].Set(func(f *vllmtest.Faults) { *f = faults })
		w.d[0].Set(func(f *vllmtest.Faults) { *f = faults })
		a := w.ask(streamed)
		w.eventually(phase, there)
		a.cancel()
		w.eventually("aborted "+phase, func() bool { return w.p[0].Seen().Aborted+w.d[0].Seen().Aborted > aborted })
		close(gate)
		<-a.done
		w.rest()
	}
}

// The fence dies with its process, and nobody else can say whether D was asked.
// The client that comes again with its key is read by a process that delivered
// nothing (rule 5c, clauses 7 and 8): one handoff, answered by another epoch.
func TestAKilledGatewaysClientIsAnsweredUnderItsKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		faults func(*vllmtest.Faults, chan struct{})
		there  func(w *world, a *asked) bool
	}{
		"killed before D was asked": {func(f *vllmtest.Faults, gate chan struct{}) { f.PrefillGate = gate },
			func(w *world, _ *asked) bool { return w.p[0].Seen().Prefills == 1 }},
		"killed after D was asked, before its first token": {func(f *vllmtest.Faults, gate chan struct{}) { f.TokenGate = gate },
			func(w *world, _ *asked) bool { return w.d[0].Seen().Decodes == 1 }},
		"killed after the first token": {func(f *vllmtest.Faults, gate chan struct{}) { f.RestGate = gate },
			func(_ *world, a *asked) bool { return strings.Contains(a.got(), "w0") }},
	} {
		key := strings.NewReplacer(" ", "-", ",", "").Replace(name) // each its own: Temporal is one for all
		t.Run(key, func(t *testing.T) {
			w := newWorld(t, one, one)
			gate := make(chan struct{})
			for _, e := range append(w.p, w.d...) {
				e.Set(func(f *vllmtest.Faults) { c.faults(f, gate) })
			}
			a := w.ask(streamed, "Idempotency-Key", key)
			w.eventually("it is there, and durable", func() bool { return c.there(w, a) && w.running() == 1 })
			w.serve.kill()
			<-a.done
			w.eventually("what ran is aborted", func() bool { return w.p[0].Seen().Aborted+w.d[0].Seen().Aborted == 1 })
			for _, e := range append(w.p, w.d...) {
				e.Set(func(f *vllmtest.Faults) { *f = vllmtest.Faults{} })
			}
			close(gate)
			w.start()
			again := w.comesAgain(streamed, key)
			w.whole(again)
			if out := w.history(again.handoff); out.Code != "" || !out.Committed || out.Attempt.Epoch != 2 {
				t.Errorf("not the same handoff, by another epoch: %+v", out)
			}
			third := w.ask(streamed, "Idempotency-Key", key)
			if w.whole(third); third.handoff != again.handoff || third.got() != again.got() {
				t.Error("the key does not stand for that answer")
			}
			w.rest()
		})
	}
}
