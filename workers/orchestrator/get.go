package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	submitv1 "github.com/surehand/surehand/contracts/gen/surehand/submit/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// listMax bounds one List.
const listMax = 1000

// converterOf reads search attributes, which the server must read too.
func converterOf() converter.DataConverter { return converter.GetDefaultDataConverter() }

// Get tells what the history says of one handoff.
func (o *Orchestrator) Get(ctx context.Context, tenant, id string) (*submitv1.Handoff, error) {
	wid := o.workflowID(tenant, id)
	d, err := o.temporal.DescribeWorkflowExecution(ctx, wid, "")
	if err != nil {
		if gone(err) {
			return nil, handoff.Errorf(handoff.CodeGone, "no handoff %s of tenant %s", id, tenant)
		}
		return nil, handoff.Errorf(handoff.CodeUnavailable, "temporal: %s", err.Error())
	}
	info := d.GetWorkflowExecutionInfo()
	h := summary(tenant, id, info)
	if info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return h, o.running(ctx, wid, h)
	}
	return h, o.closed(ctx, wid, h)
}

// running asks the workflow itself.
func (o *Orchestrator) running(ctx context.Context, wid string, h *submitv1.Handoff) error {
	v, err := o.temporal.QueryWorkflow(ctx, wid, "", steps.QueryState)
	if err != nil {
		return handoff.Errorf(handoff.CodeUnavailable, "temporal: %s", err.Error())
	}
	var st steps.State
	if err := v.Get(&st); err != nil {
		return handoff.Errorf(handoff.CodeInternal, "workflow state: %s", err.Error())
	}
	h.Phase, h.Epoch, h.Prefill, h.Decode, h.Bytes = string(st.Phase), uint32(st.Epoch), string(st.Prefill), string(st.Decode), st.Bytes
	h.Spans = spans(st.Spans)
	return nil
}

// closed reads the outcome, which a refused run carries in its failure.
func (o *Orchestrator) closed(ctx context.Context, wid string, h *submitv1.Handoff) error {
	var out steps.Outcome
	err := o.temporal.GetWorkflow(ctx, wid, h.RunId).Get(ctx, &out)
	var app *temporal.ApplicationError
	var cancelled *temporal.CanceledError
	switch {
	case err == nil:
	case errors.As(err, &app) && app.HasDetails():
		err = app.Details(&out)
	case errors.As(err, &cancelled) && cancelled.HasDetails():
		err = cancelled.Details(&out)
	default:
		h.Code, h.Detail = handoff.CodeUnavailable.String(), err.Error()
		return nil
	}
	if err != nil {
		return handoff.Errorf(handoff.CodeInternal, "outcome: %s", err.Error())
	}
	h.Phase, h.Epoch, h.Prefill, h.Decode = string(handoff.PhaseEnded), uint32(out.Attempt.Epoch), string(out.Prefill), string(out.Decode)
	h.Code, h.Detail, h.Bytes, h.Spans = out.Code, out.Detail, out.Bytes, spans(out.Spans)
	h.Usage = &submitv1.Usage{PromptTokens: out.Usage.Prompt, CompletionTokens: out.Usage.Completion, DirectTokens: out.Usage.Direct,
		CachedTokens: out.Usage.Cached, RecomputedTokens: out.Usage.Recomputed}
	h.Status = status(h.Status, out.Code)
	return nil
}

// status of a run that completed: committed outcomes stick, whole or not.
func status(run, code string) string {
	switch code {
	case "":
		return run
	case handoff.CodeCancelled.String():
		return "cancelled"
	}
	return "failed"
}

func spans(in []steps.Span) []*submitv1.PhaseSpan {
	out := make([]*submitv1.PhaseSpan, 0, len(in))
	for _, s := range in {
		out = append(out, &submitv1.PhaseSpan{Step: string(s.Step), Epoch: uint32(s.Epoch), StartMicros: s.Start, EndMicros: s.End, Code: s.Code, Bytes: s.Bytes, Engine: s.Engine})
	}
	return out
}

var statusNames = map[enumspb.WorkflowExecutionStatus]string{
	enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING: "running", enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED: "completed",
	enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED: "cancelled", enumspb.WORKFLOW_EXECUTION_STATUS_FAILED: "failed",
	enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED: "failed", enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT: "failed",
}

// statusQuery is the visibility filter of each status that List takes.
var statusQuery = map[string]string{"running": "Running", "completed": "Completed", "cancelled": "Canceled", "failed": "Failed"}

func summary(tenant, id string, info *workflowpb.WorkflowExecutionInfo) *submitv1.Handoff {
	h := &submitv1.Handoff{Handoff: id, Tenant: tenant, Status: statusNames[info.GetStatus()],
		WorkflowId: info.GetExecution().GetWorkflowId(), RunId: info.GetExecution().GetRunId(), StartedUnixMs: info.GetStartTime().AsTime().UnixMilli()}
	if t := info.GetCloseTime(); t != nil {
		h.EndedUnixMs = t.AsTime().UnixMilli()
	}
	text := func(name string) string {
		var v string
		if p := info.GetSearchAttributes().GetIndexedFields()[name]; p == nil || converterOf().FromPayload(p, &v) != nil {
			return ""
		}
		return v
	}
	h.Model, h.Prefill, h.Decode = text("SurehandModel"), text("SurehandPrefill"), text("SurehandDecode")
	if h.Phase = text("SurehandPhase"); h.Phase == "open" {
		h.Phase = ""
	}
	if c := text("SurehandOutcome"); c != "" && c != "completed" {
		h.Code = c
		h.Status = status(h.Status, c)
	}
	var epoch int64
	if p := info.GetSearchAttributes().GetIndexedFields()["SurehandEpoch"]; p != nil && converterOf().FromPayload(p, &epoch) == nil {
		h.Epoch = uint32(epoch)
	}
	return h
}

// List tells the newest handoffs of a tenant, newest first.
func (o *Orchestrator) List(ctx context.Context, tenant, status string, limit int) ([]*submitv1.Handoff, error) {
	if limit <= 0 {
		limit = 50
	}
	if limit > listMax {
		return nil, handoff.Errorf(handoff.CodeInvalid, "limit is %d, want 1..%d", limit, listMax)
	}
	if err := handoff.ValidateID("tenant", tenant); err != nil {
		return nil, err
	}
	q := fmt.Sprintf("WorkflowType = %q AND WorkflowId STARTS_WITH %q", steps.Workflow, tenant+"/")
	if status != "" {
		s, ok := statusQuery[status]
		if !ok {
			return nil, handoff.Errorf(handoff.CodeInvalid, "status %q, want running, completed, cancelled or failed", status)
		}
		q += fmt.Sprintf(" AND ExecutionStatus = %q", s)
	}
	got, err := o.temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Namespace: o.cfg.Temporal.Namespace, PageSize: int32(limit), Query: q})
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeUnavailable, "temporal: %s", err.Error())
	}
	out := make([]*submitv1.Handoff, 0, len(got.GetExecutions()))
	for _, e := range got.GetExecutions() {
		out = append(out, summary(tenant, strings.TrimPrefix(e.GetExecution().GetWorkflowId(), tenant+"/"), e))
	}
	return out, nil
}
