package orchestrator

import (
	"context"
	"strconv"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

func itoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// Pauses between two tries to record something in Temporal.
const (
	recordPause    = 20 * time.Millisecond
	recordPauseMax = 2 * time.Second
	recordTimeout  = 2 * time.Second
	updateTimeout  = time.Second
)

// insist tries to record something in Temporal until it is recorded, no workflow
// runs any more (gone), or ctx ends with the last failure.
func insist(ctx context.Context, record func(context.Context) error) error {
	for pause := recordPause; ; pause = min(2*pause, recordPauseMax) {
		try, cancel := context.WithTimeout(ctx, recordTimeout)
		err := record(try)
		cancel()
		if err == nil || gone(err) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// report tells the workflow off the critical path, again until the server has it. Where no workflow runs any more (record: handoff, or terminated) the
// reader closes what is left itself: the end is its own to record.
func (o *Orchestrator) report(s *stream, e steps.Ended) {
	in := s.input()
	e.Detail = steps.Clip(e.Detail)
	o.recording(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, in.Decode)
		defer cancel()
		if in.Record == steps.RecordHandoff && e.Code == "" {
			o.closeDetached(ctx, s, in, e)
			return
		}
		err := o.recordEnd(ctx, o.workflowID(in.Tenant, in.ID), e)
		switch {
		case err == nil:
		case gone(err):
			o.closeDetached(ctx, s, in, e)
		default:
			o.log.Error("the end of a stream could not be recorded", "handoff", in.ID, "attempt", e.Attempt.String(), "error", err.Error())
		}
	})
}

// recordEnd tells a good end by an update, which Temporal writes down only with
// the workflow's own end: one write instead of three. It is lost if no worker
// takes it, so that, as for any bad end, a signal follows, which is kept. Told
// twice, the first end counts.
func (o *Orchestrator) recordEnd(ctx context.Context, workflow string, e steps.Ended) error {
	if e.Code == "" {
		err := o.updateEnd(ctx, workflow, e)
		if err == nil || gone(err) {
			return err
		}
	}
	return insist(ctx, func(ctx context.Context) error {
		return o.temporal.SignalWorkflow(ctx, workflow, "", steps.SignalEnded, e)
	})
}

func (o *Orchestrator) updateEnd(ctx context.Context, workflow string, e steps.Ended) error {
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	told, err := o.temporal.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{WorkflowID: workflow, UpdateID: e.Attempt.String(),
		UpdateName: steps.UpdateEnded, Args: []any{e}, WaitForStage: client.WorkflowUpdateStageCompleted})
	if err != nil {
		return err
	}
	return told.Get(ctx, nil)
}

// closeDetached ends what a handoff without a running workflow still holds, its
// stream included: nobody else would.
func (o *Orchestrator) closeDetached(ctx context.Context, s *stream, in steps.Input, e steps.Ended) {
	ctx, cancel := context.WithTimeout(ctx, in.Lease)
	defer cancel()
	var err error
	if e.Code == "" {
		_, err = o.steps.UndoReserve(ctx, steps.StepInput{Request: in, Hard: true})
	} else {
		s.fail(&handoff.Error{Code: handoff.ParseCode(e.Code), Detail: e.Detail})
		_, err = o.steps.ReleaseNow(ctx, in)
	}
	if err != nil {
		o.log.Warn("what a detached handoff held is left to its leases", "handoff", in.ID, "error", err.Error())
	}
	out := steps.Outcome{Attempt: e.Attempt, Committed: true, Code: e.Code, Finish: e.Finish}
	if _, err := o.steps.Settle(ctx, steps.StepInput{Request: in, Outcome: &out}); err != nil {
		o.log.Warn("the ledger was not told how a detached handoff ended", "handoff", in.ID, "error", err.Error())
	}
}
