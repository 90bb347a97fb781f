package workflows_test

import (
	"context"
	"fmt"
	"sync"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	commonpb "go.temporal.io/api/common/v1"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

type stepFunc = func(context.Context, steps.StepInput) (steps.Output, error)

// call is one execution of a step: the n-th of its step and epoch.
type call struct {
	step  handoff.Step
	epoch handoff.Epoch
	n     int
}

func (c call) String() string { return fmt.Sprintf("%s/e%d#%d", c.step, c.epoch, c.n) }

// fault is what goes wrong in one call. The zero value is nothing.
type fault struct {
	code  handoff.Code // what is answered in place of the result
	done  bool         // the step was done all the same
	twice bool         // the step is done two times
}

// registry is a worker's registry that passes every call through the faults.
type registry struct{ f *flow }

func (r registry) RegisterActivity(a any) { r.f.env.RegisterActivity(a) }
func (r registry) RegisterDynamicActivity(a any, o activity.DynamicRegisterOptions) {
	r.f.env.RegisterDynamicActivity(a, o)
}

func (r registry) RegisterActivityWithOptions(a any, o activity.RegisterOptions) {
	step := handoff.Step(o.Name)
	inner := a.(stepFunc)
	r.f.env.RegisterActivityWithOptions(func(ctx context.Context, in steps.StepInput) (steps.Output, error) {
		if !r.f.reset { // the test environment has no original run id
			in.OriginalRunID = activity.GetInfo(ctx).WorkflowExecution.RunID
		}
		return r.f.call(ctx, step, in, inner)
	}, o)
}

func (f *flow) call(ctx context.Context, step handoff.Step, in steps.StepInput, inner stepFunc) (steps.Output, error) {
	c := call{step: step, epoch: in.Request.Plan.Attempt.Epoch}
	f.mu.Lock()
	k := c.String()
	c.n = f.count[k]
	f.count[k]++
	f.calls = append(f.calls, c)
	var bad fault
	if f.faults != nil {
		bad = f.faults(c)
	}
	f.mu.Unlock()
	switch {
	case bad.code != handoff.CodeNone && !bad.done:
		return steps.Output{}, refused(bad.code)
	case bad.code != handoff.CodeNone:
		if _, err := inner(ctx, in); err != nil {
			return steps.Output{}, err
		}
		return steps.Output{}, refused(bad.code)
	case bad.twice:
		if out, err := inner(ctx, in); err != nil {
			return out, err
		}
	}
	return inner(ctx, in)
}

// refused is a refusal as activities give it.
func refused(c handoff.Code) error {
	return temporal.NewApplicationErrorWithOptions("planted", c.String(), temporal.ApplicationErrorOptions{NonRetryable: c.Advice() != handoff.RetrySame})
}

// at plants a fault in one call, or with n < 0 in every call of its step and epoch.
func at(c call, bad fault) func(call) fault {
	return func(got call) fault {
		if got.step == c.step && got.epoch == c.epoch && (c.n < 0 || got.n == c.n) {
			return bad
		}
		return fault{}
	}
}

// recorder keeps every payload that would stand in a history.
type recorder struct {
	converter.DataConverter
	mu   sync.Mutex
	seen []string
}

func newRecorder() *recorder {
	return &recorder{DataConverter: converter.GetDefaultDataConverter()}
}

func (r *recorder) ToPayload(v any) (*commonpb.Payload, error) {
	p, err := r.DataConverter.ToPayload(v)
	r.keep(p)
	return p, err
}

func (r *recorder) ToPayloads(v ...any) (*commonpb.Payloads, error) {
	ps, err := r.DataConverter.ToPayloads(v...)
	for _, p := range ps.GetPayloads() {
		r.keep(p)
	}
	return ps, err
}

func (r *recorder) keep(p *commonpb.Payload) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, string(p.GetData()))
}

func (r *recorder) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}
