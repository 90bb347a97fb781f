package sim

import (
	"time"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// wishes brings what a workflow asks of Temporal to its execution.
type wishes struct {
	interceptor.WorkerInterceptorBase
	x *execution
}

// InterceptWorkflow implements interceptor.WorkerInterceptor.
func (a *wishes) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &inbound{interceptor.WorkflowInboundInterceptorBase{Next: next}, a.x}
}

type inbound struct {
	interceptor.WorkflowInboundInterceptorBase
	x *execution
}

// Init implements interceptor.WorkflowInboundInterceptor.
func (i *inbound) Init(next interceptor.WorkflowOutboundInterceptor) error {
	return i.Next.Init(&outbound{interceptor.WorkflowOutboundInterceptorBase{Next: next}, i.x})
}

type outbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	x *execution
}

// Await ends when the workflow is forgotten. What it is waiting under is what
// history will go by, once this task is completed.
func (o *outbound) Await(ctx workflow.Context, condition func() bool) error {
	x := o.x
	if x.state != nil {
		if s, err := x.state(); err == nil {
			x.mu.Lock()
			x.plan, x.route = s.Plan, s.Route
			x.mu.Unlock()
		}
	}
	err := o.Next.Await(ctx, func() bool { return x.isOver() || condition() })
	if x.isOver() {
		return errNoTask
	}
	return err
}

// Now is the time at which the present task began, or its last local activity ended.
func (o *outbound) Now(workflow.Context) time.Time { return o.x.now }

// GetInfo tells the same to every execution.
func (o *outbound) GetInfo(ctx workflow.Context) *workflow.Info {
	info := *o.Next.GetInfo(ctx)
	info.WorkflowStartTime, info.OriginalRunID = o.x.start, runID()
	if o.x.h.reset.Load() {
		info.OriginalRunID = "the run before"
	}
	return &info
}

// GetVersion is the newest: every history here is of the present code.
func (o *outbound) GetVersion(_ workflow.Context, change string, _, newest workflow.Version) workflow.Version {
	if change == "recorded-first" && o.x.s.omits(recordedFirst) {
		return workflow.DefaultVersion
	}
	return newest
}

// GetSignalChannel implements interceptor.WorkflowOutboundInterceptor.
func (o *outbound) GetSignalChannel(_ workflow.Context, name string) workflow.ReceiveChannel {
	return o.x.signals[name]
}

// SetQueryHandler implements interceptor.WorkflowOutboundInterceptor.
func (o *outbound) SetQueryHandler(_ workflow.Context, _ string, handler any) error {
	o.x.state = handler.(func() (steps.State, error))
	return nil
}

// NewTimer implements interceptor.WorkflowOutboundInterceptor.
func (o *outbound) NewTimer(ctx workflow.Context, d time.Duration) workflow.Future {
	return o.x.wait(ctx, &op{}, &order{wait: max(d, time.Nanosecond)})
}

// ExecuteActivity implements interceptor.WorkflowOutboundInterceptor.
func (o *outbound) ExecuteActivity(ctx workflow.Context, step string, args ...any) workflow.Future {
	in := args[0].(steps.StepInput)
	return o.x.wait(ctx, &op{step: handoff.Step(step), in: in}, &order{step: handoff.Step(step), in: in, options: workflow.GetActivityOptions(ctx)})
}

// ExecuteLocalActivity implements interceptor.WorkflowOutboundInterceptor.
func (o *outbound) ExecuteLocalActivity(ctx workflow.Context, step string, args ...any) workflow.Future {
	return o.x.wait(ctx, &op{step: handoff.Step(step), local: true, in: args[0].(steps.StepInput), budget: workflow.GetLocalActivityOptions(ctx)}, nil)
}

// wait notes what the workflow waits for, and what of it the server has to do.
func (x *execution) wait(ctx workflow.Context, o *op, r *order) workflow.Future {
	future, then := workflow.NewFuture(ctx)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last++
	o.id, o.ctx, o.then = x.last, ctx, then
	x.ops[o.id] = o
	if r == nil {
		x.local++
		x.fresh = append(x.fresh, o)
		return future
	}
	r.op = o.id
	x.orders = append(x.orders, *r)
	return future
}
