package activities

import (
	"context"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
	"github.com/surehand/surehand/contracts/tracing"
)

// traced has a step's run be a span of the handoff's trace: one span, however
// many ask for the step. The trace stands in the workflow's input and not in
// headers of Temporal's: a head start is no activity, and a step that another
// process takes over belongs to the same trace.
func traced(in steps.StepInput, step handoff.Step, fn func(context.Context) (steps.Output, error)) func(context.Context) (steps.Output, error) {
	if in.Request.Trace == "" || !tracing.On() {
		return fn
	}
	return func(ctx context.Context) (steps.Output, error) {
		ctx, span := tracing.Start(tracing.With(ctx, in.Request.Trace), tracing.StepPrefix+string(step), in.Request.Plan.Attempt)
		out, err := fn(ctx)
		span.Text(tracing.KeyEngine, out.Engine)
		span.Text(tracing.KeyLane, out.Lane)
		if out.Bytes > 0 {
			span.Number(tracing.KeyBytes, out.Bytes)
		}
		span.End(err)
		return out, err
	}
}

// inTrace is traced for the steps that are not joined, which have their span in
// Attempts already.
func inTrace(step handoff.Step, fn stepFunc) stepFunc {
	switch step {
	case handoff.StepReserve, handoff.StepPrefill, handoff.StepTransfer:
		return fn
	}
	return func(ctx context.Context, in steps.StepInput) (steps.Output, error) {
		return traced(in, step, func(ctx context.Context) (steps.Output, error) { return fn(ctx, in) })(ctx)
	}
}
