package workflows

import (
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// execute runs one step to its end and turns whatever came into a result.
func (r *run) execute(ctx workflow.Context, cmd handoff.Command) handoff.Result {
	in := steps.StepInput{Request: r.in, Hard: cmd.Hard, OriginalRunID: workflow.GetInfo(ctx).OriginalRunID,
		Reader: r.reader, Exclude: r.exclude}
	in.Request.Plan = cmd.Plan
	in.Request.Route = r.routes[cmd.Plan.Attempt.Epoch]
	out, err := r.run(ctx, cmd, in)
	res := handoff.Result{Step: cmd.Step, Attempt: cmd.Plan.Attempt, Verdict: out.Verdict}
	if err != nil {
		res.Code, res.Detail = codeOf(err)
		if isUndo(cmd.Step) {
			res.Verdict = handoff.VerdictUnknown
		}
	}
	if res.Code == handoff.CodeNone {
		r.learn(cmd, out, &res)
	}
	r.record(cmd, out, res)
	return res
}

// run chooses how the step is executed. Undo steps first try at once, in the
// workflow task; what then is still unanswered goes on as a normal activity in
// the background until it is parked (L4), while the protocol goes on without it.
func (r *run) run(ctx workflow.Context, cmd handoff.Command, in steps.StepInput) (out steps.Output, err error) {
	switch {
	case cmd.Step == handoff.StepPlace:
		// Normal activity: its completion is an event of the history before any
		// operation of the new epoch is issued (rule 2).
		err = workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, placeOptions()), string(cmd.Step), in).Get(ctx, &out)
	case r.in.Long && (cmd.Step == handoff.StepPrefill || cmd.Step == handoff.StepTransfer):
		err = workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, longOptions(r.in, cmd)), string(cmd.Step), in).Get(ctx, &out)
	default:
		err = workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, localOptions(r.in, cmd)), string(cmd.Step), in).Get(ctx, &out)
	}
	if err != nil && (cmd.Step == handoff.StepUndoTransfer || cmd.Step == handoff.StepUndoPrefill || cmd.Step == handoff.StepUndoReserve) {
		if code, _ := codeOf(err); code.Advice() == handoff.RetrySame {
			r.insist(cmd, in)
		}
	}
	return out, err
}

// insist goes on with an undo that nobody answered yet.
func (r *run) insist(cmd handoff.Command, in steps.StepInput) {
	r.running++
	workflow.Go(r.undo, func(ctx workflow.Context) {
		var out steps.Output
		err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, undoOptions(cmd)), string(cmd.Step), in).Get(ctx, &out)
		if code, _ := codeOf(err); err != nil && code.Advice() == handoff.RetrySame {
			r.parked = append(r.parked, string(cmd.Step)+" of "+cmd.Plan.Attempt.String())
		}
		r.running--
		r.changed = true
	})
}

// learn keeps what a done step tells.
func (r *run) learn(cmd handoff.Command, out steps.Output, res *handoff.Result) {
	switch cmd.Step {
	case handoff.StepTransfer:
		r.bytes = out.Bytes
	case handoff.StepAskReader:
		if out.Reader != nil {
			res.Reader = *out.Reader
		}
	case handoff.StepPlace:
		if out.Plan == nil || out.Route == nil {
			res.Code, res.Detail = handoff.CodeInternal, "placement gave no plan"
			return
		}
		res.Next = out.Plan
		r.routes[out.Plan.Attempt.Epoch] = *out.Route
	}
}

// record adds the step to the time line and notes whom to avoid next.
func (r *run) record(cmd handoff.Command, out steps.Output, res handoff.Result) {
	s := steps.Span{Step: cmd.Step, Epoch: cmd.Plan.Attempt.Epoch, Start: out.StartMicros, End: out.EndMicros, Bytes: out.Bytes, Engine: out.Engine}
	if res.Code != handoff.CodeNone {
		s.Code = res.Code.String()
		switch cmd.Step {
		case handoff.StepReserve, handoff.StepCommit:
			r.avoid(cmd.Plan.D.Engine)
		case handoff.StepPrefill:
			r.avoid(cmd.Plan.P.Engine)
		case handoff.StepTransfer:
			r.avoid(cmd.Plan.P.Engine)
			r.avoid(cmd.Plan.D.Engine)
		}
	}
	if len(r.spans) < maxSpans {
		r.spans = append(r.spans, s)
	}
}

func (r *run) avoid(e handoff.EngineID) {
	if !slices.Contains(r.exclude, e) {
		r.exclude = append(r.exclude, e)
	}
}

// codeOf reads the typed refusal out of what Temporal made of it.
func codeOf(err error) (handoff.Code, string) {
	var app *temporal.ApplicationError
	var timeout *temporal.TimeoutError
	switch {
	case err == nil:
		return handoff.CodeNone, ""
	case errors.As(err, &app):
		return handoff.ParseCode(app.Type()), app.Message()
	case temporal.IsCanceledError(err):
		return handoff.CodeCancelled, "the step was cancelled"
	case errors.As(err, &timeout):
		return handoff.CodeUnavailable, "no answer within the step's budget"
	}
	return handoff.CodeUnavailable, err.Error()
}

// watchDecode looks now and then whether TD still holds a committed target, so
// that a handoff whose reader died ends too (L1): nobody would signal its end.
func (r *run) watchDecode(ctx workflow.Context) {
	for {
		if err := workflow.Await(ctx, func() bool { return r.coord.Phase() == handoff.PhaseDecoding || r.coord.Outcome() != nil }); err != nil {
			return
		}
		if r.coord.Outcome() != nil || workflow.Sleep(ctx, watchEvery(r.in)) != nil || r.coord.Phase() != handoff.PhaseDecoding {
			return
		}
		cmd := handoff.Command{Step: steps.StepWatch, Plan: r.coord.Plan()}
		res := r.execute(ctx, cmd)
		if res.Code != handoff.CodeNone || res.Verdict == handoff.VerdictOver {
			detail := "the decode's lease ended: nobody reads the stream"
			if res.Code.Advice() == handoff.RetrySame {
				continue // D's daemon is silent; look again, the execution timeout bounds it
			}
			r.coord.StreamEnded(handoff.CodeStreamBroken, detail)
			r.changed = true
			return
		}
	}
}

// tellReader names the newest planned attempt to the reader (rule 5c, clause 7).
func (r *run) tellReader(ctx workflow.Context) {
	in := steps.StepInput{Request: r.in, OriginalRunID: workflow.GetInfo(ctx).OriginalRunID, Reader: r.reader}
	opts := localOptions(r.in, handoff.Command{Step: steps.StepTell})
	if err := workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, opts), string(steps.StepTell), in).Get(ctx, nil); err != nil {
		r.parked = append(r.parked, "tell reader "+r.reader.Reader.Process)
	}
}

// decided runs once when the outcome is known: the ledger and the reader hear
// of it while undo steps still run.
func (r *run) decided(ctx workflow.Context) {
	workflow.SetCurrentDetails(ctx, r.details())
	if r.settled || r.coord.Outcome() == nil {
		return
	}
	r.settled = true
	r.running++
	out := r.outcome()
	out.Spans = nil
	in := steps.StepInput{Request: r.in, OriginalRunID: workflow.GetInfo(ctx).OriginalRunID, Reader: r.reader, Outcome: &out}
	workflow.Go(r.undo, func(ctx workflow.Context) {
		opts := localOptions(r.in, handoff.Command{Step: steps.StepSettle})
		if err := workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, opts), string(steps.StepSettle), in).Get(ctx, nil); err != nil {
			r.parked = append(r.parked, string(steps.StepSettle))
		}
		r.running--
		r.changed = true
	})
}

// finish closes the run with its outcome.
func (r *run) finish(ctx workflow.Context) (steps.Outcome, error) {
	out := r.outcome()
	o := r.coord.Outcome()
	if err := workflow.UpsertTypedSearchAttributes(r.undo, endAttributes(r.in, out)...); err != nil {
		return out, err
	}
	if o.Code == handoff.CodeNone || o.Committed {
		return out, nil
	}
	if o.Code == handoff.CodeCancelled && ctx.Err() != nil {
		return out, temporal.NewCanceledError(out)
	}
	return out, temporal.NewApplicationErrorWithOptions(o.Code.String()+": "+o.Detail, o.Code.String(),
		temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{out}})
}

const maxSpans = 256

func watchEvery(in steps.Input) time.Duration { return 4 * in.Lease }
