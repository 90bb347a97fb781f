package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// tell names the present attempt to the reader that history names, which then
// attaches (rule 5c, clause 7). Where the reserve did that itself it is not
// run. It goes on until the reader heard it, the attempt is over or another
// reader is named.
func (r *run) tell() {
	cmd := handoff.Command{Step: steps.StepTell, Plan: r.coord.Plan()}
	token, known := r.tokens[cmd.Plan.Attempt.Epoch]
	if !known {
		return // told when the reserve is done
	}
	r.hush()
	var ctx workflow.Context
	ctx, r.hush = workflow.WithCancel(r.undo)
	in := r.input(cmd)
	in.Token = &token
	told := func(done workflow.Future) {
		out, err := output(ctx, done)
		code, detail := codeOf(err)
		if ctx.Err() != nil {
			return // no longer so
		}
		r.record(cmd, out, handoff.Result{Code: code})
		if r.coord.Plan().Attempt == cmd.Plan.Attempt && r.unread(code) {
			r.coord.StreamEnded(handoff.CodeGone, detail)
		}
	}
	insist := func() {
		r.beside(workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, tellOptions(r.in)), string(cmd.Step), in), told)
	}
	if in.Reader.Reader.Number > 1 && r.recordsFirst() {
		// Not within this task: a worker that goes on for one that was lost in it may
		// hear the earlier reader's report before it hears of this one.
		insist()
		return
	}
	r.beside(r.begin(ctx, cmd, in), func(done workflow.Future) {
		_, err := output(ctx, done)
		if code, _ := codeOf(err); code.Advice() != handoff.RetrySame || ctx.Err() != nil {
			told(done)
			return
		}
		insist()
	})
}

// unread says, by what its reader answered, that nobody reads this handoff, nor will:
// it is the reader's own word, or the reader's connections ended with its life and
// its client has nothing to come back with.
func (r *run) unread(code handoff.Code) bool {
	return code == handoff.CodeGone || code == handoff.CodeStaleIncarnation && r.in.Nameless
}

// watchDecode looks now and then whether TD still holds a committed target, so
// that a handoff whose reader died ends too (L1): nobody would signal its end.
func (r *run) watchDecode(pause time.Duration, suspected bool) {
	r.watched = true
	r.when(workflow.NewTimer(r.undo, pause), func(workflow.Future) {
		if r.coord.Phase() != handoff.PhaseDecoding {
			r.watched = false // another epoch's decode may follow
			return
		}
		cmd := handoff.Command{Step: steps.StepWatch, Plan: r.coord.Plan()}
		r.when(r.begin(r.undo, cmd, r.input(cmd)), func(done workflow.Future) {
			out, err := output(r.undo, done)
			code, _ := codeOf(err)
			over := out.Verdict == handoff.VerdictOver || code != handoff.CodeNone && code.Advice() != handoff.RetrySame
			switch {
			case r.coord.Phase() != handoff.PhaseDecoding:
				r.watched = false
			case r.coord.Plan().Attempt != cmd.Plan.Attempt:
				r.watchDecode(watchEvery(r.in), false)
			case !over: // or D's daemon is silent; the execution timeout bounds that
				r.watchDecode(watchAgain(r.in, pause), false)
			case !suspected:
				r.watchDecode(r.in.Lease, true) // a stream that ended well may be reported a moment later
			default:
				r.coord.StreamEnded(handoff.CodeStreamBroken, "the decode's lease ended: nobody reads the stream")
			}
		})
	})
}

// decided runs what follows from a decided outcome: the reader hears of a
// refusal at once, while undo steps still run; the ledger keeps or frees the
// key once every step has answered, because only then is it certain whether
// the attempt was committed.
func (r *run) decided() {
	workflow.SetCurrentDetails(r.root, r.details())
	o := r.coord.Outcome()
	if o == nil {
		return
	}
	r.stop()
	r.hush()
	if o.Code != handoff.CodeNone && r.toldEnd != r.reader.Reader {
		r.toldEnd = r.reader.Reader
		r.report(steps.StepEnd)
	}
	if r.coord.Ended() && !r.settled {
		r.settled = true
		r.unproven = o.Unproven && workflow.GetVersion(r.undo, changeUnprovenSticks, workflow.DefaultVersion, 1) != workflow.DefaultVersion
		if r.in.Key != "" {
			r.report(steps.StepSettle)
		}
	}
}

// report runs a step that carries the outcome.
func (r *run) report(step handoff.Step) {
	cmd := handoff.Command{Step: step, Plan: r.coord.Plan()}
	in := r.input(cmd)
	out := r.outcome()
	out.Spans = nil
	in.Outcome = &out
	r.beside(r.begin(r.undo, cmd, in), func(done workflow.Future) {
		if code, _ := codeOf(done.Get(r.undo, nil)); code != handoff.CodeNone && step == steps.StepSettle {
			r.insist(cmd, in, code) // a reader that cannot be reached has no client to tell
		}
	})
}

// finish closes the run with its outcome.
func (r *run) finish(ctx workflow.Context) (steps.Outcome, error) {
	out := r.outcome()
	o := r.coord.Outcome()
	if !r.in.NoAttributes {
		if err := workflow.UpsertTypedSearchAttributes(r.undo, endAttributes(out)...); err != nil {
			return out, err
		}
	}
	if out.Sticks() && (o.Code != handoff.CodeReset || o.Committed || r.isReset(o.Code)) {
		return out, nil
	}
	if o.Code == handoff.CodeCancelled && ctx.Err() != nil {
		return out, temporal.NewCanceledError(out)
	}
	return out, temporal.NewApplicationErrorWithOptions(out.Code+": "+out.Detail, out.Code,
		temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{out}})
}
