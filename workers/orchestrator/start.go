package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
	"github.com/surehand/surehand/workflows"
)

// memo keys of a run: who made it, told to a gateway that lost the start.
const (
	memoNonce = "nonce"
	memoOwner = "owner"
	memoBody  = "body"
)

func (o *Orchestrator) workflowID(tenant, id string) string { return tenant + "/" + id }

// start makes the request durable. The head start runs meanwhile.
func (o *Orchestrator) start(ctx context.Context, s *stream, in steps.Input) {
	err := o.execute(ctx, in)
	var exists *serviceerror.WorkflowExecutionAlreadyStarted
	switch {
	case err == nil:
		return
	case errors.As(err, &exists):
		o.yield(ctx, s, in)
	default:
		o.startUnknown(ctx, s, in, err)
	}
}

func (o *Orchestrator) execute(ctx context.Context, in steps.Input) error {
	ctx, cancel := context.WithTimeout(ctx, o.cfg.StartTimeout)
	defer cancel()
	opts := client.StartWorkflowOptions{
		ID: o.workflowID(in.Tenant, in.ID), TaskQueue: o.cfg.Temporal.TaskQueue,
		WorkflowExecutionTimeout: in.Deadline + in.Decode + workflows.UndoParkedAfter,
		WorkflowTaskTimeout:      workflows.TaskTimeout,
		// Fail, so that a gateway knows that the run is not its own; only a run
		// that ended refused before its commit may be followed by another.
		WorkflowIDConflictPolicy:                 enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		EnableEagerStart:                         true,
		Memo:                                     map[string]any{memoNonce: in.Plan.Attempt.Nonce.String(), memoOwner: in.ReaderAddress, memoBody: fmt.Sprintf("%x", in.Plan.BodyDigest[:])},
		StaticSummary:                            fmt.Sprintf("%s · P %s → D %s · %d prompt tokens", in.Model, in.Plan.P.Engine, in.Plan.D.Engine, in.PromptTokens),
	}
	if !o.cfg.Temporal.NoAttributes {
		opts.TypedSearchAttributes = workflows.StartAttributes(in)
	}
	_, err := o.temporal.ExecuteWorkflow(ctx, opts, steps.Workflow, in)
	return err
}

// yield is a start that met another run of the id: this gateway's head start is
// undone under its own nonce only (rule 6), and its client follows the other.
func (o *Orchestrator) yield(ctx context.Context, s *stream, in steps.Input) {
	run, err := o.describeRun(ctx, in)
	if err == nil && run.nonce == in.Plan.Attempt.Nonce.String() {
		return // our own start, answered twice
	}
	s.giveUp(in.Plan.Attempt)
	o.undoHeadStart(ctx, in)
	if err != nil {
		o.refuse(s, err)
		return
	}
	if run.body != fmt.Sprintf("%x", in.Plan.BodyDigest[:]) {
		o.refuse(s, handoff.Errorf(handoff.CodeKeyReused, "the idempotency key was used with another body"))
		return
	}
	if err := o.relay(ctx, s, in, run.owner, run.status); err != nil {
		o.refuse(s, err)
	}
}

// startUnknown asks Temporal first. An undo of a start that happened after all
// is harmless: soft and under its own nonce, it costs an epoch.
func (o *Orchestrator) startUnknown(ctx context.Context, s *stream, in steps.Input, cause error) {
	run, err := o.describeRun(ctx, in)
	if err == nil && run.nonce == in.Plan.Attempt.Nonce.String() {
		return
	}
	if s.giveUp(in.Plan.Attempt) {
		o.refuse(s, handoff.Errorf(handoff.CodeUnavailable, "the request could not be made durable: %s", cause.Error()))
	}
	o.undoHeadStart(ctx, in)
	if in.Key != "" {
		if err := o.cfg.Ledger.Unclaim(ctx, in.Tenant, in.Key, in.Plan.Attempt.Handoff); err != nil {
			o.log.Warn("a key stays claimed until its window ends or its owner asks again", "handoff", in.ID, "error", err.Error())
		}
	}
}

func (o *Orchestrator) undoHeadStart(ctx context.Context, in steps.Input) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), in.Lease)
	defer cancel()
	o.fleet.Step(in.Plan.Attempt, handoff.StepReserve, errNotBegun)
	if err := o.steps.UndoHeadStart(ctx, in); err != nil {
		o.log.Warn("a head start is left to its leases", "handoff", in.ID, "error", err.Error())
	}
}

type runFacts struct{ nonce, owner, body, status, runID string }

func (o *Orchestrator) describeRun(ctx context.Context, in steps.Input) (runFacts, error) {
	ctx, cancel := context.WithTimeout(ctx, o.cfg.StartTimeout)
	defer cancel()
	d, err := o.temporal.DescribeWorkflowExecution(ctx, o.workflowID(in.Tenant, in.ID), "")
	if err != nil {
		return runFacts{}, handoff.Errorf(handoff.CodeUnavailable, "temporal: %s", err.Error())
	}
	f := runFacts{status: d.GetWorkflowExecutionInfo().GetStatus().String(), runID: d.GetWorkflowExecutionInfo().GetExecution().GetRunId()}
	memo := d.GetWorkflowExecutionInfo().GetMemo().GetFields()
	for k, to := range map[string]*string{memoNonce: &f.nonce, memoOwner: &f.owner, memoBody: &f.body} {
		if err := converterOf().FromPayload(memo[k], to); err != nil {
			return runFacts{}, handoff.Errorf(handoff.CodeInternal, "memo %s: %s", k, err.Error())
		}
	}
	return f, nil
}

// signal reports the stream's end to the handoff's workflow.
func (o *Orchestrator) signal(ctx context.Context, in steps.Input, e steps.Ended) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return o.temporal.SignalWorkflow(ctx, o.workflowID(in.Tenant, in.ID), "", steps.SignalEnded, e)
}

// gone says that no workflow of the id runs any more.
func gone(err error) bool {
	var nf *serviceerror.NotFound
	return errors.As(err, &nf)
}

// Cancel ends a handoff directly (rule 18) and tells the workflow as well.
func (o *Orchestrator) Cancel(ctx context.Context, tenant, id string) (bool, error) {
	if s := o.hub.find(tenant, id); s != nil && !s.over() && !s.relayed() {
		return o.cancel(ctx, s, "cancelled by request"), nil
	}
	err := o.temporal.CancelWorkflow(ctx, o.workflowID(tenant, id), "")
	if gone(err) {
		return false, handoff.Errorf(handoff.CodeGone, "no handoff %s runs", id)
	}
	if err != nil {
		return false, handoff.Errorf(handoff.CodeUnavailable, "temporal: %s", err.Error())
	}
	return false, nil
}

// cancel reaches D, P and their daemons at once, then the workflow.
func (o *Orchestrator) cancel(ctx context.Context, s *stream, why string) (beforeCommit bool) {
	in := s.input()
	s.giveUp(in.Plan.Attempt)
	o.steps.Attempts.Unkeep(in.Plan.Attempt)
	s.fail(handoff.Errorf(handoff.CodeCancelled, "%s", why))
	o.over(s, handoff.CodeCancelled.String())
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), in.Lease)
	defer done()
	if in.Plan.Attempt.Epoch == 0 {
		return true // nothing was planned yet
	}
	if err := o.cfg.Ledger.MarkCancelled(ctx, in.Plan.Attempt.Handoff, time.Minute); err != nil {
		o.log.Debug("cancelled mark", "handoff", in.ID, "error", err.Error()) // a short cut only
	}
	before, err := o.steps.ReleaseNow(ctx, in)
	if err != nil {
		o.log.Warn("a cancel did not reach every daemon; the workflow goes on with it", "handoff", in.ID, "error", err.Error())
	}
	if err := o.temporal.CancelWorkflow(ctx, o.workflowID(in.Tenant, in.ID), ""); err != nil && !gone(err) {
		o.log.Warn("the workflow was not told of a cancel", "handoff", in.ID, "error", err.Error())
	}
	return before
}
