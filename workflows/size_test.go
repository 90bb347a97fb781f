package workflows

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

func TestTheLongestOutcomeAndStepFitAPayload(t *testing.T) {
	id := strings.Repeat("x", handoff.MaxIDBytes)
	address := "[2001:0db8:85a3:0000:0000:8a2e:0370:7334]:65535"
	attempt := handoff.Attempt{Handoff: handoff.HandoffID(id), Epoch: handoff.MaxEpoch, Nonce: ^handoff.Nonce(0)}
	seat := handoff.Seat{Engine: handoff.EngineID(id), Node: handoff.NodeID(id), Incarnation: 1 << 40}
	reader := handoff.Reader{Process: address, Incarnation: ^handoff.Incarnation(0), Number: 1 << 30}
	r := &run{room: maxSpanBytes}
	for range 9 * handoff.MaxEpoch {
		r.record(handoff.Command{Step: handoff.StepUndoTransfer, Plan: handoff.Plan{Attempt: attempt}},
			steps.Output{Engine: id, StartMicros: 1 << 50, EndMicros: 1 << 50, Bytes: 1 << 60}, handoff.Result{Code: handoff.CodeStaleIncarnation})
	}
	parked := make([]string, maxParked)
	for i := range parked {
		parked[i] = string(handoff.StepUndoTransfer) + " of " + attempt.String()
	}
	out := steps.Outcome{Attempt: attempt, Committed: true, Code: handoff.CodeStaleIncarnation.String(), Detail: steps.Clip(strings.Repeat("d", 5000)),
		Finish: "length", Prefill: seat.Engine, Decode: seat.Engine, Bytes: 1 << 60, Spans: r.spans, Parked: parked,
		Usage: steps.Usage{Prompt: 1 << 31, Completion: 1 << 31, Direct: 1 << 31, Cached: 1 << 31, Recomputed: 1 << 31}}
	fits(t, "outcome", out)
	if len(r.spans) < 6 {
		t.Errorf("only %d steps are shown", len(r.spans))
	}
	end := steps.Endpoint{Engine: address, Control: address, Peer: address}
	var body handoff.Digest
	for i := range body {
		body[i] = 255
	}
	in := steps.StepInput{OriginalRunID: strings.Repeat("r", 36), Reader: steps.ReaderAt{Reader: reader, Address: address}, Hard: true,
		Token: &handoff.Token{Attempt: attempt, Node: seat.Node, Incarnation: 1 << 40, Generation: 1 << 40},
		Request: steps.Input{Tenant: id, ID: strings.Repeat("k", 27), Key: strings.Repeat("0", 32), Model: strings.Repeat("m", handoff.MaxNameBytes),
			Revision: strings.Repeat("v", handoff.MaxNameBytes), Route: steps.Route{P: end, D: end, Blocks: 1 << 24, Total: 1 << 24}, ReaderAddress: address,
			Plan: handoff.Plan{Attempt: attempt, P: seat, D: seat, Reader: reader, BodyDigest: body}}}
	for range 6 { // two engines an epoch
		in.Exclude = append(in.Exclude, handoff.EngineID(id))
	}
	fits(t, "step", in)
	out.Spans, in.Exclude, in.Token = nil, nil, nil
	in.Outcome = &out
	fits(t, "report", in)
}

func fits(t *testing.T, what string, v any) {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil || len(raw) > steps.MaxPayloadBytes {
		t.Errorf("%s has %d bytes, limit %d, %v", what, len(raw), steps.MaxPayloadBytes, err)
	}
}

func TestARefusedStepStaysOnTheTimeLineWhenOthersGiveWay(t *testing.T) {
	r := &run{room: maxSpanBytes}
	step := func(epoch handoff.Epoch, code handoff.Code) {
		r.record(handoff.Command{Step: handoff.StepCommit, Plan: handoff.Plan{Attempt: handoff.Attempt{Epoch: epoch}}}, steps.Output{Engine: "d"}, handoff.Result{Code: code})
	}
	step(1, handoff.CodeNotValidated)
	for range 50 {
		step(2, handoff.CodeNone)
	}
	if first := r.spans[0]; first.Epoch != 1 || first.Code != handoff.CodeNotValidated.String() || len(r.spans) > 20 {
		t.Errorf("%d steps, the first is %+v", len(r.spans), first)
	}
}
