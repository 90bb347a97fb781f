package orchestrator

import (
	"context"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// Cancel ends a handoff directly (rule 18) and tells the workflow as well. One
// that is over already stays as it is.
func (o *Orchestrator) Cancel(ctx context.Context, tenant, id string) (bool, error) {
	if s := o.hub.find(tenant, id); s != nil && !s.isOver() && s.roleNow() == roleReads {
		return o.cancel(ctx, s, handoff.Errorf(handoff.CodeCancelled, "cancelled by request"), nil), nil
	}
	err := o.temporal.CancelWorkflow(ctx, o.workflowID(tenant, id), "")
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
	o.recording(func(ctx context.Context) { o.tellCancel(ctx, in) })
	return before
}

// tellCancel makes the cancel history.
func (o *Orchestrator) tellCancel(ctx context.Context, in steps.Input) {
	ctx, done := context.WithTimeout(ctx, in.Deadline)
	defer done()
	err := insist(ctx, func(ctx context.Context) error {
		return o.temporal.CancelWorkflow(ctx, o.workflowID(in.Tenant, in.ID), "")
	})
	if err != nil && !gone(err) {
		o.log.Error("the workflow was not told of a cancel", "handoff", in.ID, "error", err.Error())
	}
}
