package orchestrator

import (
	"context"
	"crypto/rand"
	"errors"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/surehand/surehand/activities/operations"
	operatev1 "github.com/surehand/surehand/contracts/gen/surehand/operate/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// Act is what an operator wants done to a handoff, and why.
type Act struct {
	By, Tenant, ID, Reason string
	Prefill, Decode        string // of Steer: engine ids; empty: placed
}

// audit writes an act down before it is done; what cannot be written is not done.
func (o *Orchestrator) audit(ctx context.Context, by, action, on, reason string) error {
	if o.cfg.Operations == nil {
		return handoff.Errorf(handoff.CodeUnavailable, "this gateway has no store for operators' acts")
	}
	if err := o.cfg.Operations.Record(ctx, operations.Entry{By: by, Action: action, On: on, Reason: reason}); err != nil {
		return err
	}
	o.log.Info("operator", "by", by, "action", action, "on", on, "reason", reason)
	return nil
}

// CancelFor ends any tenant's handoff.
func (o *Orchestrator) CancelFor(ctx context.Context, a Act) (status string, err error) {
	if err := o.audit(ctx, a.By, "cancel", o.workflowID(a.Tenant, a.ID), a.Reason); err != nil {
		return "", err
	}
	if _, err := o.Cancel(ctx, a.Tenant, a.ID); err != nil {
		return "", err
	}
	h, err := o.Get(ctx, a.Tenant, a.ID)
	return h.GetStatus(), err
}

// Steer names the engines of the epochs to come; with now the present attempt is
// given up for the next one, if it is not committed. The act is in the history.
func (o *Orchestrator) Steer(ctx context.Context, a Act, now bool) (steps.Steered, error) {
	action := "pin"
	if now {
		action = "replace"
	}
	var out steps.Steered
	if err := o.known(ctx, a); err != nil {
		return out, err
	}
	if err := o.audit(ctx, a.By, action, o.workflowID(a.Tenant, a.ID), a.Reason); err != nil {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*stateWithin)
	defer cancel()
	told, err := o.temporal.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{WorkflowID: o.workflowID(a.Tenant, a.ID), UpdateID: rand.Text(),
		UpdateName: steps.UpdateSteer, WaitForStage: client.WorkflowUpdateStageCompleted,
		Args: []any{steps.Steer{By: a.By, Reason: steps.Clip(a.Reason), Now: now, Pin: steps.Pin{Prefill: handoff.EngineID(a.Prefill), Decode: handoff.EngineID(a.Decode)}}}})
	if err == nil {
		err = told.Get(ctx, &out)
	}
	var refused *temporal.ApplicationError
	switch {
	case gone(err):
		return out, handoff.Errorf(handoff.CodeGone, "handoff %s of tenant %s does not run", a.ID, a.Tenant)
	case errors.As(err, &refused):
		return out, handoff.Errorf(handoff.ParseCode(refused.Type()), "%s", refused.Message())
	case err != nil:
		return out, handoff.Errorf(handoff.CodeUnavailable, "temporal: %s", err.Error())
	}
	return out, nil
}

// known refuses engines that nobody registered.
func (o *Orchestrator) known(ctx context.Context, a Act) error {
	if a.Prefill == "" && a.Decode == "" {
		return nil
	}
	engines, err := o.fleet.view(ctx)
	if err != nil {
		return err
	}
	roles := map[string]string{}
	for _, e := range engines {
		roles[string(e.ID)] = string(e.Role)
	}
	for name, id := range map[string]string{"prefill": a.Prefill, "decode": a.Decode} {
		if id != "" && roles[id] != name && roles[id] != "both" {
			return handoff.Errorf(handoff.CodeInvalid, "%s: no such engine is registered: %q", name, id)
		}
	}
	return nil
}

// ReleaseFor frees what a handoff that is over still holds anywhere. One that
// runs is cancelled instead: who cannot record must not release (rule 4).
//
// Idempotent: a release of what is released answers the present state.
func (o *Orchestrator) ReleaseFor(ctx context.Context, a Act) (released []string, err error) {
	if st, err := o.state(ctx, steps.Input{Tenant: a.Tenant, ID: a.ID}); err == nil && st.Outcome == nil {
		return nil, handoff.Errorf(handoff.CodeConflict, "handoff %s runs: cancel it", a.ID)
	} else if err != nil && !gone(err) {
		return nil, err
	}
	if err := o.audit(ctx, a.By, "release", o.workflowID(a.Tenant, a.ID), a.Reason); err != nil {
		return nil, err
	}
	held, _, err := o.survey(ctx, "")
	if err != nil {
		return nil, err
	}
	var failed []error
	for _, h := range held {
		if h.public != a.ID || h.owner != "" && h.owner != o.workflowID(a.Tenant, a.ID) {
			continue
		}
		if err := o.release(ctx, h); err != nil {
			failed = append(failed, err)
			continue
		}
		released = append(released, h.kind+" of "+h.plan.Attempt.String()+" at "+string(h.engine))
	}
	return released, errors.Join(failed...)
}

// Cordon has an engine take nothing new, or take work again.
func (o *Orchestrator) Cordon(ctx context.Context, by, engine, reason string, off bool) error {
	action := "cordon"
	if off {
		action = "uncordon"
	}
	if err := o.audit(ctx, by, action, engine, reason); err != nil {
		return err
	}
	if err := o.cfg.Operations.Cordon(ctx, handoff.EngineID(engine), by+": "+reason, off); err != nil {
		return err
	}
	o.fleet.refresh(ctx)
	return nil
}

// Audit lists what operators did, the newest first.
func (o *Orchestrator) Audit(ctx context.Context, most int) ([]operations.Entry, error) {
	if o.cfg.Operations == nil {
		return nil, handoff.Errorf(handoff.CodeUnavailable, "this gateway has no store for operators' acts")
	}
	return o.cfg.Operations.Entries(ctx, most)
}

// EngineStates lists the engines as they are registered, cordoned ones too.
func (o *Orchestrator) EngineStates(ctx context.Context) ([]*operatev1.EngineState, error) {
	engines, err := o.fleet.view(ctx)
	if err != nil {
		return nil, err
	}
	why := o.fleet.cordoned()
	var out []*operatev1.EngineState
	for _, e := range engines {
		s := &operatev1.EngineState{Engine: string(e.ID), Role: string(e.Role), Model: e.Model, Node: string(e.Node), Cordoned: e.Cordoned,
			Why: why[e.ID], Blocks: e.Blocks, Promises: e.Promises}
		if l := e.Load; l != nil {
			s.BlocksFree, s.Running, s.Waiting = l.BlocksFree, l.Running, l.Waiting
		}
		if e.Cordoned && s.Why == "" {
			s.Why = "no transferd stands beside it"
		}
		out = append(out, s)
	}
	return out, nil
}
