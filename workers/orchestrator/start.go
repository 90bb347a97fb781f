package orchestrator

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
	"github.com/surehand/surehand/workflows"
)

// memo keys of a run: who made it, told to a gateway that lost the start.
const (
	memoNonce = "nonce"
	memoOwner = "owner"
	memoBody  = "body"
	memoModel = "model" // these two are for a client that comes back
	memoKind  = "kind"
)

// memos reads what a run's memo says, sealed as every payload.
func (o *Orchestrator) memos() converter.DataConverter {
	if c := o.cfg.Temporal.Converter; c != nil {
		return c
	}
	return converter.GetDefaultDataConverter()
}

func bodyText(d handoff.Digest) string { return hex.EncodeToString(d[:]) }

func (o *Orchestrator) workflowID(tenant, id string) string { return tenant + "/" + id }

// start makes the request durable. The head start runs meanwhile.
func (o *Orchestrator) start(ctx context.Context, s *stream, in steps.Input, r Request, tries int, admitted func()) {
	if s.wasLeft() { // before anything is durable: nothing needs to be
		admitted()
		o.undoHeadStart(ctx, in)
		o.unclaim(ctx, in, in.Plan.Attempt.Handoff)
		return
	}
	err := o.execute(ctx, in, r, enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE)
	var exists *serviceerror.WorkflowExecutionAlreadyStarted
	if errors.As(err, &exists) {
		if reuse, may := o.mayFollow(ctx, in); may {
			err = o.execute(ctx, in, r, reuse)
		}
	}
	admitted()
	switch {
	case err == nil:
		if s.wasLeft() { // while the start was under way
			o.tellCancel(ctx, in, whyLeft)
		}
	case errors.As(err, &exists):
		o.yield(ctx, s, in, r, tries)
	default:
		o.startUnknown(ctx, s, in, err)
	}
}

// mayFollow says that in may begin behind the run that stands in its way, and under
// which policy: that run ended refused before its commit, or longer ago than the key's
// window, so that only its history is retained for longer (the ledger, which forgot
// the key by its own clock, gave it to in before this is asked). Temporal has no policy
// that tells a refusal from a run that was terminated or timed out: whether that one's
// client has tokens nobody can say, so its key is spent though the ledger forgot it.
// For another run to come and be terminated between the two starts, the ledger would
// have to forget in's own claim meanwhile.
func (o *Orchestrator) mayFollow(ctx context.Context, in steps.Input) (reuse enumspb.WorkflowIdReusePolicy, may bool) {
	run, err := o.describeRun(ctx, in, o.cfg.StartTimeout)
	switch {
	case err != nil, run.nonce == in.Plan.Attempt.Nonce.String(), run.status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:
		return reuse, false
	case run.refused():
		return enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY, true
	}
	return enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE, time.Since(run.closed) > in.Window
}

func (o *Orchestrator) execute(ctx context.Context, in steps.Input, r Request, reuse enumspb.WorkflowIdReusePolicy) error {
	ctx, cancel := o.pulse.patient(ctx, o.cfg.StartTimeout*3/4)
	defer cancel()
	opts := client.StartWorkflowOptions{
		ID: o.workflowID(in.Tenant, in.ID), TaskQueue: o.cfg.Temporal.TaskQueue,
		WorkflowExecutionTimeout: in.Deadline + in.Decode + workflows.UndoParkedAfter,
		WorkflowTaskTimeout:      workflows.TaskTimeout,
		// Fail, so that a gateway knows that the run is not its own.
		WorkflowIDConflictPolicy:                 enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowIDReusePolicy:                    reuse,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		EnableEagerStart:                         true,
		Memo:                                     map[string]any{memoNonce: in.Plan.Attempt.Nonce.String(), memoOwner: in.ReaderAddress, memoBody: bodyText(in.Plan.BodyDigest), memoModel: in.Model, memoKind: r.Kind},
		StaticSummary:                            fmt.Sprintf("%s · P %s → D %s · %d prompt tokens", in.Model, in.Plan.P.Engine, in.Plan.D.Engine, in.PromptTokens),
	}
	if !o.cfg.Temporal.NoAttributes {
		opts.TypedSearchAttributes = workflows.StartAttributes(in)
	}
	_, err := o.temporal.ExecuteWorkflow(ctx, opts, steps.Workflow, in)
	var exists *serviceerror.WorkflowExecutionAlreadyStarted
	if err != nil && ctx.Err() != nil && !errors.As(err, &exists) {
		return context.Cause(ctx) // Temporal's client says only that a context ended
	}
	return err
}

// yield is a start that met another run of the id: this gateway's head start is
// undone under its own nonce only (rule 6), and its client joins the other.
func (o *Orchestrator) yield(ctx context.Context, s *stream, in steps.Input, r Request, tries int) {
	run, err := o.describeRun(ctx, in, o.cfg.StartTimeout)
	if err == nil && run.nonce == in.Plan.Attempt.Nonce.String() {
		return // our own start, answered twice
	}
	s.giveUp(in.Plan.Attempt)
	o.undoHeadStart(ctx, in)
	o.unclaim(ctx, in, in.Plan.Attempt.Handoff)
	if err != nil {
		o.refuse(s, err)
		return
	}
	o.withdraw(s, in)
	o.join(s, in.ID, r, holder{owner: run.owner}, tries)
}

// startUnknown asks Temporal first. An undo of a start that happened after all
// is harmless: soft and under its own nonce, it ends that run as refused.
func (o *Orchestrator) startUnknown(ctx context.Context, s *stream, in steps.Input, cause error) {
	run, err := o.describeRun(ctx, in, o.cfg.StartTimeout/4)
	if err == nil && run.nonce == in.Plan.Attempt.Nonce.String() {
		return
	}
	if s.giveUp(in.Plan.Attempt) == handoff.ReaderDelivering {
		return // only a run of ours can have committed
	}
	o.refuse(s, handoff.Errorf(handoff.CodeUnavailable, "the request could not be made durable: %s", cause.Error()))
	o.undoHeadStart(ctx, in)
	o.unclaim(ctx, in, in.Plan.Attempt.Handoff)
}

func (o *Orchestrator) undoHeadStart(ctx context.Context, in steps.Input) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), in.Lease)
	defer cancel()
	o.fleet.Step(in.Plan.Attempt, handoff.StepReserve, errNotBegun)
	if err := o.steps.UndoHeadStart(ctx, in); err != nil {
		o.log.Warn("a head start is left to its leases", "handoff", in.ID, "error", err.Error())
	}
}

// runFacts are what Temporal tells of the newest run of an id.
type runFacts struct {
	nonce, owner, body, runID string
	model, kind               string // empty: not told
	status                    enumspb.WorkflowExecutionStatus
	closed                    time.Time // by Temporal's clock; meaningless while it runs
}

// refused says that the run ended by its own word before its commit.
func (f runFacts) refused() bool {
	return f.status == enumspb.WORKFLOW_EXECUTION_STATUS_FAILED || f.status == enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED
}

// describeRun reads them; an error for which gone is true says that there is none.
func (o *Orchestrator) describeRun(ctx context.Context, in steps.Input, within time.Duration) (runFacts, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	d, err := o.temporal.DescribeWorkflowExecution(ctx, o.workflowID(in.Tenant, in.ID), "")
	if gone(err) {
		return runFacts{}, err
	}
	if err != nil {
		return runFacts{}, handoff.Errorf(handoff.CodeUnavailable, "temporal: %s", err.Error())
	}
	info := d.GetWorkflowExecutionInfo()
	f := runFacts{status: info.GetStatus(), runID: info.GetExecution().GetRunId(), closed: info.GetCloseTime().AsTime()}
	for k, to := range map[string]*string{memoNonce: &f.nonce, memoOwner: &f.owner, memoBody: &f.body} {
		if err := o.memos().FromPayload(info.GetMemo().GetFields()[k], to); err != nil {
			return runFacts{}, handoff.Errorf(handoff.CodeInternal, "memo %s: %s", k, err.Error())
		}
	}
	for k, to := range map[string]*string{memoModel: &f.model, memoKind: &f.kind} {
		if p := info.GetMemo().GetFields()[k]; p != nil && o.memos().FromPayload(p, to) != nil {
			*to = ""
		}
	}
	return f, nil
}

// gone says that no workflow of the id runs any more.
func gone(err error) bool {
	var nf *serviceerror.NotFound
	return errors.As(err, &nf)
}

// endedRun says that err is how a run ended, not that it could not be asked.
func endedRun(err error) bool {
	var e *temporal.WorkflowExecutionError
	return errors.As(err, &e)
}
