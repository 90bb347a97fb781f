package native

import (
	"strings"
	"testing"
	"time"

	"github.com/surehand/surehand/activities/engine/vllm/vllmtest"
	"github.com/surehand/surehand/contracts/handoff"
)

var one = []vllmtest.Options{{}}
var two = []vllmtest.Options{{}, {}}

func TestUnmodifiedEnginesServeThroughTheDurablePath(t *testing.T) {
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

func TestAClientThatLeavesStopsWhateverRuns(t *testing.T) {
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

// The fence dies with its process: what it did not record is never guessed.
func TestAfterAKillOfTheOrchestratorNothingIsDeliveredTwice(t *testing.T) {
	w := newWorld(t, one, one)
	gate := make(chan struct{})
	w.d[0].Set(func(f *vllmtest.Faults) { f.RestGate = gate })
	a := w.ask(streamed, "Idempotency-Key", "k1")
	w.eventually("the first token", func() bool { return strings.Contains(a.got(), "w0") })
	w.serve.kill()
	<-a.done
	w.eventually("D aborted", func() bool { return w.d[0].Seen().Aborted == 1 })
	w.d[0].Set(func(f *vllmtest.Faults) { f.RestGate = nil })
	close(gate)
	w.start()
	again := w.ask(streamed, "Idempotency-Key", "k1")
	<-again.done
	if again.status == 200 {
		w.whole(again) // a new epoch, whole and from its beginning
	} else if code := w.refused(again); code == "" || code == handoff.CodeInternal.String() {
		t.Errorf("%d %q", again.status, again.text)
	}
	w.rest()
}
