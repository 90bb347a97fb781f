package workflows

import (
	"errors"
	"slices"
	"strings"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// result turns whatever came of a step into what the coordinator is told.
func (r *run) result(ctx workflow.Context, cmd handoff.Command, in steps.StepInput, done workflow.Future) handoff.Result {
	out, err := output(ctx, done)
	res := handoff.Result{Step: cmd.Step, Attempt: cmd.Plan.Attempt, Verdict: out.Verdict}
	res.Code, res.Detail = codeOf(err)
	if late := r.expired || r.left(ctx) <= leftMin; late && !r.isReset(res.Code) && (cmd.Step == handoff.StepPlace || forward(cmd.Step) && res.Code != handoff.CodeNone) {
		res.Code, res.Detail = handoff.CodeDeadline, "no token within "+r.in.Deadline.String()
	}
	if res.Code == handoff.CodeNone {
		r.learn(cmd, in, out, &res)
	} else if !forward(cmd.Step) {
		res.Verdict = handoff.VerdictUnknown
	}
	if isUndo(cmd.Step) && res.Code != handoff.CodeNone {
		r.insist(cmd, in, res.Code)
	}
	r.record(cmd, out, res)
	return res
}

// isReset says that a step was refused because the run is a reset one, which no
// deadline changes.
func (r *run) isReset(c handoff.Code) bool {
	return c == handoff.CodeReset && workflow.GetVersion(r.undo, changeResetSticks, workflow.DefaultVersion, 1) != workflow.DefaultVersion
}

// input is what the step of cmd is told.
func (r *run) input(cmd handoff.Command) steps.StepInput {
	in := steps.StepInput{Request: r.in, Hard: cmd.Hard, OriginalRunID: workflow.GetInfo(r.root).OriginalRunID,
		Reader: r.reader, Exclude: slices.Clone(r.exclude)}
	in.Request.Plan = cmd.Plan
	in.Request.Route = r.routes[cmd.Plan.Attempt.Epoch]
	in.Request.Route.Why = nil // told once, where the plan stands
	if cmd.Step == handoff.StepPlace {
		in.Request.Pin = r.pin
	}
	if r.resumed != nil && (cmd.Step == handoff.StepPlace || cmd.Plan.Attempt.Epoch > r.resumed.From) {
		in.Request.Resumed = r.resumed
		in.Request.PromptTokens += r.resumed.Position
		in.Request.Sampling.MaxTokens -= min(in.Request.Sampling.MaxTokens-1, r.resumed.Position)
	}
	return in
}

// begin chooses how the step is executed: in the workflow task itself wherever
// that is soon over.
func (r *run) begin(ctx workflow.Context, cmd handoff.Command, in steps.StepInput) workflow.Future {
	switch {
	case cmd.Step == handoff.StepPlace:
		// Normal activity: its completion is an event of the history before any
		// operation of the new epoch is issued (rule 2).
		return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, placeOptions()), string(cmd.Step), in)
	case r.in.Long && (cmd.Step == handoff.StepPrefill || cmd.Step == handoff.StepTransfer):
		return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, longOptions(r.left(ctx), cmd)), string(cmd.Step), in)
	}
	return workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, localOptions(r.left(ctx), cmd)), string(cmd.Step), in)
}

// output is what a step that is done told.
func output(ctx workflow.Context, done workflow.Future) (out steps.Output, err error) {
	if err = done.Get(ctx, &out); err != nil {
		out = partOf(err)
	}
	return out, err
}

// insist goes on, in the background, with an undo that nobody answered yet,
// until it is done or parked (L4); the protocol goes on without it. A refusal
// that a repeat cannot change is parked at once.
func (r *run) insist(cmd handoff.Command, in steps.StepInput, code handoff.Code) {
	if code.Advice() != handoff.RetrySame {
		r.park(cmd, code)
		return
	}
	again := workflow.ExecuteActivity(workflow.WithActivityOptions(r.undo, undoOptions(cmd)), string(cmd.Step), in)
	r.beside(again, func(done workflow.Future) {
		if code, _ := codeOf(done.Get(r.undo, nil)); code != handoff.CodeNone {
			r.park(cmd, code)
		}
	})
}

// park makes a step that could not be finished visible: in the outcome, in the
// workflow's details and in its log, on which an alert stands.
func (r *run) park(cmd handoff.Command, code handoff.Code) {
	name := string(cmd.Step) + " of " + cmd.Plan.Attempt.String()
	workflow.GetLogger(r.root).Error("a step is parked", "step", string(cmd.Step), "attempt", cmd.Plan.Attempt.String(), "code", code.String())
	if len(r.parked) < maxParked && !slices.Contains(r.parked, name) {
		r.parked = append(r.parked, name)
	}
}

// learn keeps what a done step tells.
func (r *run) learn(cmd handoff.Command, in steps.StepInput, out steps.Output, res *handoff.Result) {
	switch cmd.Step {
	case handoff.StepReserve:
		if out.Token == nil {
			res.Code, res.Detail = handoff.CodeInternal, "reserve gave no token"
			return
		}
		r.tokens[cmd.Plan.Attempt.Epoch] = *out.Token
		if r.coord.Plan().Attempt == cmd.Plan.Attempt && (!out.Told || in.Reader.Reader != r.reader.Reader) {
			r.tell()
		}
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

// record adds the step to the time line and notes whom to avoid next. The
// oldest steps go when the line gets too long for a payload.
func (r *run) record(cmd handoff.Command, out steps.Output, res handoff.Result) {
	s := steps.Span{Step: spanStep(cmd), Epoch: cmd.Plan.Attempt.Epoch, Start: out.StartMicros, End: out.EndMicros, Bytes: out.Bytes, Engine: out.Engine}
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
	r.span(s)
}

// spanStep names a release apart from an undo: it also ends what is committed.
func spanStep(cmd handoff.Command) handoff.Step {
	if cmd.Hard {
		return handoff.Step(strings.Replace(string(cmd.Step), "undo-", "release-", 1))
	}
	return cmd.Step
}

// span adds to the time line; the oldest gives way to the newest, and what went
// well to what was refused: a line that says why is worth more than one that says how.
func (r *run) span(s steps.Span) {
	r.spans = append(r.spans, s)
	for r.room -= spanBytes(s); r.room < 0; {
		i := max(0, slices.IndexFunc(r.spans, func(s steps.Span) bool { return s.Code == "" }))
		r.room += spanBytes(r.spans[i])
		r.spans = slices.Delete(r.spans, i, i+1)
	}
}

// spanBytes is a bound of one span's share of a payload.
func spanBytes(s steps.Span) int { return 120 + len(s.Engine) + len(s.Code) }

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
		return handoff.ParseCode(app.Type()), steps.Clip(app.Message())
	case temporal.IsCanceledError(err):
		return handoff.CodeCancelled, "the step was cancelled"
	case errors.As(err, &timeout):
		return handoff.CodeUnavailable, "no answer within the step's budget"
	}
	return handoff.CodeUnavailable, steps.Clip(err.Error())
}

// partOf is what a refused step told about itself: when it ran, and where.
func partOf(err error) (out steps.Output) {
	var app *temporal.ApplicationError
	if errors.As(err, &app) && app.HasDetails() {
		if app.Details(&out) != nil {
			return steps.Output{} // of another version: only the time line is poorer
		}
		out.Verdict = handoff.VerdictNone // a refusal proves nothing
	}
	return out
}
