package workflows_test

import (
	"testing"

	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/testsuite"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

func TestAWholeStreamCompletesAndLeavesNothing(t *testing.T) {
	f := newFlow(t)
	out, err := f.run()
	if err != nil || !out.Committed || out.Code != "" || out.Finish != "stop" || out.Usage.Direct != 39 || out.Bytes != 128 {
		t.Fatalf("outcome %+v, %v; calls %v", out, err, f.names())
	}
	for _, s := range []handoff.Step{handoff.StepReserve, handoff.StepPrefill, handoff.StepTransfer, handoff.StepCommit, handoff.StepUndoReserve, steps.StepSettle} {
		if !f.did(s, 1) {
			t.Errorf("%s did not run", s)
		}
	}
	for _, s := range []handoff.Step{handoff.StepUndoTransfer, handoff.StepUndoPrefill, handoff.StepPlace, steps.StepTell, steps.StepEnd} {
		if f.did(s, 1) {
			t.Errorf("%s ran for nothing", s)
		}
	}
	if k := f.key(); k != "completed" {
		t.Errorf("the key is %s", k)
	}
	f.clean()
}

func TestAnEndToldByASignalEndsItToo(t *testing.T) {
	f := newFlow(t)
	f.signals = true
	if out, err := f.run(); err != nil || !out.Committed || out.Finish != "stop" || out.Usage.Direct != 39 {
		t.Fatalf("outcome %+v, %v; calls %v", out, err, f.names())
	}
	f.clean()
}

func TestAnEndToldTwiceCountsOnce(t *testing.T) {
	f := newFlow(t)
	f.stream = func(p handoff.Plan) {
		f.whole(p)
		f.signals = true
		f.report(f.gate("gate-0"), steps.Ended{Attempt: p.Attempt, Finish: "length", Usage: steps.Usage{Completion: 99}})
	}
	if out, err := f.run(); err != nil || out.Finish != "stop" || out.Usage.Completion == 99 {
		t.Fatalf("outcome %+v, %v; calls %v", out, err, f.names())
	}
	f.clean()
}

func TestRecordedAtTheHandoffItEndsWithTheCommit(t *testing.T) {
	f := newFlow(t)
	f.in.Record = steps.RecordHandoff
	f.stream = f.nobody
	out, err := f.run()
	if err != nil || !out.Committed || out.Code != "" {
		t.Fatalf("outcome %+v, %v", out, err)
	}
	if v := f.w.Visible(); len(v) != 1 || v[0] != f.in.Plan.Attempt {
		t.Errorf("visible: %v", v)
	}
	if k := f.key(); k != "committed" {
		t.Errorf("the key is %s, want what a final outcome may follow", k)
	}
	f.safe()
}

func TestALongPrefillRunsAsANormalActivity(t *testing.T) {
	f := newFlow(t)
	f.in.Long = true
	out, err := f.run()
	if err != nil || !out.Committed {
		t.Fatalf("outcome %+v, %v", out, err)
	}
	f.clean()
}

func TestAReaderElsewhereIsToldByAStepOfItsOwn(t *testing.T) {
	f := newFlow(t)
	f.remote = true
	f.stream = f.nobody
	f.faults = func(c call) fault {
		if c.step == steps.StepWatch { // the stream goes on only once its reader was told
			f.whole(f.in.Plan)
		}
		return fault{}
	}
	if _, err := f.run(); err != nil {
		t.Fatal(err)
	}
	if !f.did(steps.StepTell, 1) || len(f.gate("gate-0").planned) == 0 {
		t.Errorf("calls %v, planned %v", f.names(), f.gate("gate-0").planned)
	}
	f.clean()
}

func TestAReaderWhoseClientLeftEndsTheHandoff(t *testing.T) {
	for _, remote := range []bool{true, false} {
		f := newFlow(t)
		f.remote = remote
		f.gate("gate-0").left = true
		f.stream = f.nobody
		out, err := f.run()
		if err == nil && !out.Committed || out.Code != "gone" {
			t.Fatalf("remote %v: outcome %+v, %v", remote, out, err)
		}
		f.clean()
	}
}

func TestWithoutSearchAttributesNoneAreSet(t *testing.T) {
	f := newFlow(t)
	f.in.NoAttributes = true
	f.prepare = func(env *testsuite.TestWorkflowEnvironment) {
		env.OnUpsertTypedSearchAttributes(mock.Anything).Panic("attributes are set").Maybe()
	}
	if _, err := f.run(); err != nil {
		t.Fatal(err)
	}
}
