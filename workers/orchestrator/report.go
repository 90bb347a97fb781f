package orchestrator

import (
	"context"
	"strconv"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

func itoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// Pauses between two tries to record something in Temporal.
const (
	recordPause    = 20 * time.Millisecond
	recordPauseMax = 2 * time.Second
	recordTimeout  = 2 * time.Second
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

// report signals the workflow off the critical path, again until the server
// has it. Where no workflow runs any more (record: handoff, or terminated) the
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
		err := insist(ctx, func(ctx context.Context) error {
			return o.temporal.SignalWorkflow(ctx, o.workflowID(in.Tenant, in.ID), "", steps.SignalEnded, e)
		})
		switch {
		case err == nil:
		case gone(err):
			o.closeDetached(ctx, s, in, e)
		default:
			o.log.Error("the end of a stream could not be recorded", "handoff", in.ID, "attempt", e.Attempt.String(), "error", err.Error())
		}
	})
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
