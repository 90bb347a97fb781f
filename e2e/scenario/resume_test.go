package scenario

import (
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/e2e/fleet"
)

// D dies in the middle of a stream that asked to go on. It does, on the other D,
// under a second epoch whose prompt is the prompt and what was delivered; the
// stream says so where it happens, and the history too. Without being asked, it
// ends with a typed error instead.
func TestAStreamThatAskedForItGoesOnWhenItsDecodeDies(t *testing.T) {
	s := shared(t)
	ctx := within(t, 2*requestWithin)
	ask := s.ask(longPrompt, answerLong)
	ask.Resume = true
	const before = 10
	ask.OnPiece = func(pieces int) {
		if pieces == before {
			if err := s.Process("d1").Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	a := s.g1().Send(ctx, ask)
	if err := a.Counted(answerLong); err != nil {
		t.Fatal(err)
	}
	if len(a.Resumed) != 1 || a.Resumed[0].From != 1 || a.Resumed[0].To != 2 || a.Resumed[0].Position < before || a.Resumed[0].Position >= answerLong {
		t.Fatalf("the stream's resume record is %+v", a.Resumed)
	}
	if a.Usage.Prompt != longPrompt+2 {
		t.Errorf("usage %+v", a.Usage)
	}
	out, err := s.Outcome(ctx, fleet.DefaultTenant, a.Handoff)
	if err != nil || out.Code != "" || out.Attempt.Epoch != 2 || out.Decode != "d2" {
		t.Errorf("the outcome is %+v %v", out, err)
	}
	h, err := s.History(ctx, fleet.DefaultTenant, a.Handoff)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := fleet.Steps(h)
	if err != nil {
		t.Fatal(err)
	}
	commits := 0
	for _, name := range steps {
		if name == string(handoff.StepCommit) {
			commits++
		}
	}
	if commits != 2 {
		t.Errorf("the history shows %v", steps)
	}
	t.Logf("resumed at %d of %d; steps %v", a.Resumed[0].Position, answerLong, steps)
}

// The same with the trained model, drawing with a seed: the text is that of a run
// that nobody disturbed, to the letter.
func TestAResumedAnswerIsThatOfOneUndisturbedRun(t *testing.T) {
	if !patient {
		t.Skip("a fleet of its own: with -tags e2e")
	}
	s := open(t, fleet.Options{Model: true, Lease: lease, EngineArgs: []string{"--step-ms", "10"}})
	ctx := within(t, 2*requestWithin)
	ask := s.ask(shortPrompt, 150)
	ask.Temperature, ask.Prefill, ask.Decode, ask.Resume = 0.8, "p1", "d1", true
	undisturbed := s.g1().Send(ctx, ask)
	ask.OnPiece = func(pieces int) {
		if pieces == 40 {
			if err := s.Process("d1").Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	resumed := s.g1().Send(ctx, ask)
	if err := resumed.Whole(); err != nil {
		t.Fatal(err)
	}
	if len(resumed.Resumed) != 1 || resumed.Text != undisturbed.Text || resumed.Finish != undisturbed.Finish {
		t.Errorf("records %+v\nresumed     %q\nundisturbed %q", resumed.Resumed, resumed.Text, undisturbed.Text)
	}
	if err := s.Heal(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.AtRest(ctx, 30*time.Second); err != nil {
		t.Error(err)
	}
}
