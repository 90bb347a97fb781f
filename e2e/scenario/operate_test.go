package scenario

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	operatev1 "github.com/surehand/surehand/contracts/gen/surehand/operate/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

func operator(t *testing.T, address string) operatev1.OperatorClient {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return operatev1.NewOperatorClient(conn)
}

// An operator takes a handoff off its engines while P computes, through the
// other gateway: the client gets one whole stream, of a second epoch on the
// engine that was named.
func TestAnOperatorMovesALiveHandoffToAnotherEngine(t *testing.T) {
	s := shared(t)
	ctx := within(t, 2*requestWithin)
	op := operator(t, s.GRPC["g2"])
	ask := s.ask(8000, 20) // P computes for four seconds: a short prefill is over before a workflow hears anything
	struck, err := fault.Strike(ctx, s.Fleet, s.g1(), ask, fault.Prefill, func(e fleet.Event) error {
		steer := &operatev1.SteerRequest{Handoff: fault.PublicID(e.Attempt), Reason: "d1 is slow", Prefill: "p2", Decode: "d2"}
		a, err := op.Replace(ctx, steer)
		for handoff.CodeOf(rpc.FromStatus(err)) == handoff.CodeGone && ctx.Err() == nil { // a head start is ahead of its history
			a, err = op.Replace(ctx, steer)
		}
		if err == nil && a.GetEpoch() != 1 {
			t.Errorf("it gave up epoch %d", a.GetEpoch())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := struck.Answer.Counted(20); err != nil {
		t.Fatal(err)
	}
	out, err := s.Outcome(ctx, fleet.DefaultTenant, struck.Answer.Handoff)
	if err != nil || out.Attempt.Epoch != 2 || out.Prefill != "p2" || out.Decode != "d2" || out.Code != "" {
		t.Errorf("the outcome is %+v %v", out, err)
	}
	_, err = op.Replace(ctx, &operatev1.SteerRequest{Handoff: struck.Answer.Handoff, Reason: "too late"})
	if handoff.CodeOf(rpc.FromStatus(err)) != handoff.CodeGone {
		t.Errorf("a handoff that is over is replaced: %v", err)
	}
	if _, err := op.Replace(ctx, &operatev1.SteerRequest{Handoff: struck.Answer.Handoff}); handoff.CodeOf(rpc.FromStatus(err)) != handoff.CodeInvalid {
		t.Errorf("an act without a reason: %v", err)
	}
	audit, err := op.Audit(ctx, &operatev1.AuditRequest{})
	if err != nil || len(audit.GetEntries()) == 0 || !strings.HasSuffix(audit.GetEntries()[0].GetOn(), "/"+struck.Answer.Handoff) {
		t.Errorf("the audit says %v %v", audit, err)
	}
	oneOwner(t, s.Since(struck.Mark))
}

// An engine is drained under a stream: what it owes is told, with its owner,
// until the stream ends; meanwhile and after it nothing new comes there. At rest
// nothing is held for nobody.
func TestADrainedEngineFinishesWhatItOwesAndTakesNothingNew(t *testing.T) {
	s := shared(t)
	ctx := within(t, 2*requestWithin)
	op := operator(t, s.GRPC["g1"])
	defer func() {
		if _, err := op.Cordon(t.Context(), &operatev1.CordonRequest{Engine: "d1", Off: true, Reason: "done"}); err != nil {
			t.Error(err)
		}
	}()
	long := s.g1().Begin(ctx, s.ask(shortPrompt, 600), 5)
	owes, err := op.Drain(ctx, &operatev1.CordonRequest{Engine: "d1", Reason: "disk replaced"})
	if err != nil {
		t.Fatal(err)
	}
	first, err := owes.Recv()
	if err != nil || len(first.GetHeld()) != 1 || first.GetHeld()[0].GetKind() != "target" || !strings.HasPrefix(first.GetHeld()[0].GetOwner(), fleet.DefaultTenant+"/") || first.GetHeld()[0].GetBlocks() == 0 {
		t.Fatalf("d1 owes %v %v", first, err)
	}
	for other := operator(t, s.GRPC["g2"]); ; { // the other gateway hears of it at its next look
		e, err := other.Engines(ctx, &operatev1.EnginesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(e.GetEngines(), func(e *operatev1.EngineState) bool { return e.GetEngine() == "d1" && e.GetCordoned() }) {
			break
		}
	}
	if a := s.g2().Send(ctx, traffic.Ask{Model: s.Options.ModelName(), Prompt: traffic.Words(shortPrompt), MaxTokens: 5, Decode: "d1"}); a.Whole() == nil {
		t.Error("a drained engine takes a request that names it")
	}
	for range 4 {
		a := s.g2().Send(ctx, traffic.Ask{Model: s.Options.ModelName(), Prompt: traffic.Words(shortPrompt), MaxTokens: 5})
		if err := a.Counted(5); err != nil {
			t.Error(err)
		} else if out, err := s.Outcome(ctx, fleet.DefaultTenant, a.Handoff); err != nil || out.Decode != "d2" {
			t.Errorf("a request went to %s %v", out.Decode, err)
		}
	}
	for err == nil {
		_, err = owes.Recv()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("the drain ended with %v", err)
	}
	if a := <-long; a.Counted(600) != nil {
		t.Errorf("the stream that was there: %s", chaos.Verdict(a))
	}
	if err := s.AtRest(ctx, 30*time.Second); err != nil {
		t.Error(err)
	}
	l, err := op.Leaks(ctx, &operatev1.LeaksRequest{})
	unknown := slices.DeleteFunc(l.GetUnknown(), func(what string) bool { return strings.HasPrefix(what, exercised+":") })
	if err != nil || len(l.GetHeld())+len(unknown) > 0 {
		t.Errorf("at rest there leaks %v %v", l, err)
	}
}
