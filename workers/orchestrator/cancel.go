package orchestrator

import (
	"context"
	"crypto/rand"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// whyLeft is a cancel of a client that went before its handoff was under way.
const whyLeft = "the client left"

// Cancel ends a handoff directly (rule 18) and tells the workflow as well. One
// that is over already stays as it is.
func (o *Orchestrator) Cancel(ctx context.Context, tenant, id string) (bool, error) {
	if s := o.hub.find(tenant, id); s != nil && !s.isOver() && s.roleNow() == roleReads {
		return o.cancel(ctx, s, handoff.Errorf(handoff.CodeCancelled, "cancelled by request"), nil), nil
	}
	err := o.requestCancel(ctx, o.workflowID(tenant, id), "cancelled by request")
	if gone(err) { // over, or never there
		_, err = o.temporal.DescribeWorkflowExecution(ctx, o.workflowID(tenant, id), "")
	}
	switch {
	case gone(err):
		return false, handoff.Errorf(handoff.CodeGone, "no handoff %s of tenant %s", id, tenant)
	case err != nil:
		return false, handoff.Errorf(handoff.CodeUnavailable, "temporal: %s", err.Error())
	}
	return false, nil
}

// cancel reaches D, P and their daemons at once, then the workflow, which
// records it (rule 4). Where unless says so, nothing is cancelled.
func (o *Orchestrator) cancel(ctx context.Context, s *stream, why *handoff.Error, unless func(*stream) bool) (beforeCommit bool) {
	in, was, left := s.leave(why, unless)
	if !left {
		return false
	}
	if was != roleReads {
		s.forsake()
		return false
	}
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), in.Lease)
	defer done()
	before, err := o.steps.ReleaseNow(ctx, in)
	if err != nil {
		o.log.Warn("a cancel did not reach every daemon; the workflow goes on with it", "handoff", in.ID, "error", err.Error())
	}
	if err := o.cfg.Ledger.MarkCancelled(ctx, in.Plan.Attempt.Handoff, time.Minute); err != nil {
		o.log.Debug("cancelled mark", "handoff", in.ID, "error", err.Error()) // a short cut only
	}
	o.recording(func(ctx context.Context) { o.tellCancel(ctx, in, why.Error()) })
	return before
}

// tellCancel makes the cancel, and why, history.
func (o *Orchestrator) tellCancel(ctx context.Context, in steps.Input, why string) {
	ctx, done := context.WithTimeout(ctx, in.Deadline)
	defer done()
	err := insist(ctx, func(ctx context.Context) error {
		return o.requestCancel(ctx, o.workflowID(in.Tenant, in.ID), why)
	})
	if err != nil && !gone(err) {
		o.log.Error("the workflow was not told of a cancel", "handoff", in.ID, "error", err.Error())
	}
}

// requestCancel is the client's CancelWorkflow with a reason, which that has no
// place for: a history then tells a deadline from a client that left.
func (o *Orchestrator) requestCancel(ctx context.Context, id, why string) error {
	_, err := o.temporal.WorkflowService().RequestCancelWorkflowExecution(ctx, &workflowservice.RequestCancelWorkflowExecutionRequest{
		Namespace: o.cfg.Temporal.Namespace, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: id},
		Identity: o.cfg.Process, RequestId: rand.Text(), Reason: why})
	return err
}
