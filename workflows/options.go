package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// The one table of budgets. Measured reasons are in ARCHITECTURE.md.
const (
	TaskTimeout     = 2 * time.Second // recovery after a worker's death takes about this
	ReserveBudget   = 1 * time.Second
	CommitBudget    = 1 * time.Second
	UndoBudget      = 1 * time.Second // then the undo goes on in the background
	UndoParkedAfter = 10 * time.Minute
	PlaceBudget     = 2 * time.Second
	SettleBudget    = 1 * time.Second
	LongBeat        = 2 * time.Second
	// MoveTries bounds how often a prefill or transfer of unknown result is asked
	// for again, within about 1.5 s: then the attempt counts as failed, and the
	// deadline is left to another.
	MoveTries = 12
	// LongTries is the same where they are normal activities: Temporal repeats
	// those about once a second, however short the interval that it was told.
	LongTries = 3
	// LongAbove is the predicted prefill from which prefill and transfer run as
	// normal activities: a local one would hold the workflow task too long.
	LongAbove = 1500 * time.Millisecond

	maxSpanBytes = 1800 // of the time line in an outcome: payloads stay under steps.MaxPayloadBytes
	maxParked    = 6

	// readerGrace is how long a handoff whose reader died waits at least for its
	// client to come again: gateways are back within it.
	readerGrace = 5 * time.Second

	// recordPause ends the task that took another plan, so that it is history.
	recordPause = time.Millisecond

	leftMin   = 10 * time.Millisecond  // a passed deadline still needs a positive budget to be refused by
	leftSlack = 500 * time.Millisecond // of a step beyond it, so that the deadline is what ends it (L1: + 2 s)
)

// watchEvery is when the decode is first looked at.
func watchEvery(in steps.Input) time.Duration { return 4 * in.Lease }

// watchMost is the longest pause between two looks: D's memory is freed by its own
// lease, so that only the run's end waits for them.
const watchMost = 10 * time.Minute

// watchAgain is when it is looked at next. Each look is a workflow task: a stream
// that goes on for long has ever fewer, or ten thousand of them would leave
// Temporal no time for anything else.
func watchAgain(in steps.Input, pause time.Duration) time.Duration {
	return max(watchEvery(in), min(2*pause, watchMost))
}

// sameOperation retries an operation whose result is unknown, under its id.
func sameOperation() *temporal.RetryPolicy {
	return &temporal.RetryPolicy{InitialInterval: 10 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 200 * time.Millisecond}
}

// localOptions bounds one step; left is what remains to the first token.
func localOptions(left time.Duration, cmd handoff.Command) workflow.LocalActivityOptions {
	o := workflow.LocalActivityOptions{RetryPolicy: sameOperation(), Summary: summary(cmd)}
	switch cmd.Step {
	case handoff.StepReserve:
		o.ScheduleToCloseTimeout = ReserveBudget
	case handoff.StepPrefill, handoff.StepTransfer:
		o.ScheduleToCloseTimeout = left + leftSlack
		o.RetryPolicy.MaximumAttempts = MoveTries
	case handoff.StepCommit:
		o.ScheduleToCloseTimeout = CommitBudget
	case handoff.StepUndoTransfer, handoff.StepUndoPrefill, handoff.StepUndoReserve, handoff.StepAskReader:
		o.ScheduleToCloseTimeout = UndoBudget
	default:
		o.ScheduleToCloseTimeout = SettleBudget
	}
	return o
}

func longOptions(left time.Duration, cmd handoff.Command) workflow.ActivityOptions {
	o := workflow.ActivityOptions{ScheduleToCloseTimeout: left + leftSlack, HeartbeatTimeout: LongBeat,
		RetryPolicy: sameOperation(), Summary: summary(cmd)}
	o.RetryPolicy.MaximumAttempts = LongTries
	return o
}

func placeOptions() workflow.ActivityOptions {
	return workflow.ActivityOptions{ScheduleToCloseTimeout: PlaceBudget, RetryPolicy: sameOperation(), Summary: "another plan"}
}

func tellOptions(in steps.Input) workflow.ActivityOptions {
	return workflow.ActivityOptions{ScheduleToCloseTimeout: in.Deadline, StartToCloseTimeout: SettleBudget,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 5 * time.Second}, Summary: "tell the reader"}
}

func undoOptions(cmd handoff.Command) workflow.ActivityOptions {
	return workflow.ActivityOptions{ScheduleToCloseTimeout: UndoParkedAfter, StartToCloseTimeout: UndoBudget,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: 200 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 5 * time.Second}, Summary: summary(cmd)}
}

// summary is the line that Temporal's UI shows beside the step.
func summary(cmd handoff.Command) string {
	verb := ""
	if cmd.Hard {
		verb = " (release)"
	}
	p := cmd.Plan
	switch cmd.Step {
	case handoff.StepReserve, handoff.StepUndoReserve, handoff.StepCommit, handoff.StepUndoTransfer:
		return fmt.Sprintf("e%d %s on D %s%s", p.Attempt.Epoch, cmd.Step, p.D.Engine, verb)
	case handoff.StepPrefill, handoff.StepUndoPrefill:
		return fmt.Sprintf("e%d %s on P %s%s", p.Attempt.Epoch, cmd.Step, p.P.Engine, verb)
	case handoff.StepTransfer:
		return fmt.Sprintf("e%d %s %s to %s", p.Attempt.Epoch, cmd.Step, p.P.Engine, p.D.Engine)
	}
	return string(cmd.Step)
}

// Search attributes, registered by whoever owns the namespace.
var (
	AttributeTenant  = temporal.NewSearchAttributeKeyKeyword("SurehandTenant")
	AttributeModel   = temporal.NewSearchAttributeKeyKeyword("SurehandModel")
	AttributePrefill = temporal.NewSearchAttributeKeyKeyword("SurehandPrefill")
	AttributeDecode  = temporal.NewSearchAttributeKeyKeyword("SurehandDecode")
	AttributePhase   = temporal.NewSearchAttributeKeyKeyword("SurehandPhase")
	AttributeOutcome = temporal.NewSearchAttributeKeyKeyword("SurehandOutcome")
	AttributeEpoch   = temporal.NewSearchAttributeKeyInt64("SurehandEpoch")
)

// StartAttributes are set once, when the workflow starts.
func StartAttributes(in steps.Input) temporal.SearchAttributes {
	return temporal.NewSearchAttributes(AttributeTenant.ValueSet(in.Tenant), AttributeModel.ValueSet(in.Model),
		AttributePrefill.ValueSet(string(in.Plan.P.Engine)), AttributeDecode.ValueSet(string(in.Plan.D.Engine)),
		AttributePhase.ValueSet("open"), AttributeEpoch.ValueSet(1))
}

// endAttributes are set once more, at the end: each upsert is a write.
func endAttributes(out steps.Outcome) []temporal.SearchAttributeUpdate {
	outcome := out.Code
	if outcome == "" {
		outcome = "completed"
	}
	return []temporal.SearchAttributeUpdate{AttributePhase.ValueSet("ended"), AttributeOutcome.ValueSet(outcome),
		AttributePrefill.ValueSet(string(out.Prefill)), AttributeDecode.ValueSet(string(out.Decode)),
		AttributeEpoch.ValueSet(int64(out.Attempt.Epoch))}
}
