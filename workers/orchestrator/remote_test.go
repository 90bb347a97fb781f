package orchestrator

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	submitv1 "github.com/surehand/surehand/contracts/gen/surehand/submit/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/contracts/steps"
)

// wired is a gateway's reader service over a real connection.
type wired struct {
	submitv1.UnimplementedReaderServer
	o *Orchestrator
}

func (w wired) GiveUp(ctx context.Context, m *submitv1.GiveUpRequest) (*submitv1.GiveUpAnswer, error) {
	a, err := rpc.FromAttempt(m.GetAttempt())
	if err != nil {
		return nil, rpc.Status(err)
	}
	given, err := w.o.GiveUp(ctx, rpc.FromReader(m.GetReader()), a)
	return &submitv1.GiveUpAnswer{GivenUp: given}, rpc.Status(err)
}

func (w wired) Planned(ctx context.Context, m *submitv1.PlannedRequest) (*submitv1.PlannedAnswer, error) {
	return &submitv1.PlannedAnswer{}, rpc.Status(w.o.PlannedFromWire(ctx, m))
}

func (w wired) Ended(ctx context.Context, m *submitv1.EndedRequest) (*submitv1.EndedAnswer, error) {
	return &submitv1.EndedAnswer{}, rpc.Status(w.o.EndedFromWire(ctx, m))
}

func (w wired) Follow(m *submitv1.FollowRequest, st grpc.ServerStreamingServer[submitv1.SubmitEvent]) error {
	for _, e := range []*submitv1.SubmitEvent{
		{Event: &submitv1.SubmitEvent_Accepted{Accepted: &submitv1.Accepted{Handoff: m.GetHandoff()}}},
		{Event: &submitv1.SubmitEvent_Delta{Delta: &submitv1.Delta{Text: "hi", Tokens: 2}}},
		{Event: &submitv1.SubmitEvent_Finished{Finished: &submitv1.Finished{FinishReason: "stop", Usage: &submitv1.Usage{CompletionTokens: 2}}}},
	} {
		if err := st.Send(e); err != nil {
			return err
		}
	}
	if m.GetHandoff() == "failing" {
		return rpc.Status(handoff.Errorf(handoff.CodeGone, "dropped"))
	}
	return nil
}

// wire serves o on loopback and gives a Remote and the address.
func wire(t *testing.T, o *Orchestrator) (*Remote, string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	submitv1.RegisterReaderServer(s, wired{o: o})
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	r := &Remote{}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		s.Stop()
		<-done
	})
	return r, l.Addr().String()
}

func TestAReaderElsewhereIsAskedUnderItsOwnLifeOnly(t *testing.T) {
	f := gateways(t, "a")
	o := f.gate("a")
	r, addr := wire(t, o)
	me := steps.ReaderAt{Reader: handoff.Reader{Process: "a", Incarnation: o.Incarnation(), Number: 1}, Address: addr}
	other := me
	other.Reader.Incarnation++
	plan := handoff.Plan{Attempt: handoff.Attempt{Handoff: "r", Epoch: 1, Nonce: 1}, P: f.w.Seat("p"), D: f.w.Seat("d"), BodyDigest: handoff.Digest{1}}
	token := handoff.Token{Attempt: plan.Attempt, Node: "d", Incarnation: 1, Generation: 1}
	for name, c := range map[string]struct {
		at   steps.ReaderAt
		want handoff.Code
	}{"this life, which reads nothing": {me, handoff.CodeGone}, "another life": {other, handoff.CodeStaleIncarnation}} {
		if _, err := r.GiveUp(t.Context(), c.at, plan.Attempt); handoff.CodeOf(err) != c.want {
			t.Errorf("%s: give up: %v", name, err)
		}
		if err := r.Planned(t.Context(), c.at, plan, f.w.Route("p", "d"), token); handoff.CodeOf(err) != c.want {
			t.Errorf("%s: planned: %v", name, err)
		}
	}
	if err := r.Ended(t.Context(), me, plan.Attempt, handoff.CodeEngine, ""); err != nil {
		t.Errorf("a forgotten stream is over: %v", err)
	}
	if err := r.Ended(t.Context(), other, plan.Attempt, handoff.CodeEngine, ""); handoff.CodeOf(err) != handoff.CodeStaleIncarnation {
		t.Errorf("another life: %v", err)
	}
}

func TestAFollowedStreamComesEventByEvent(t *testing.T) {
	f := gateways(t, "a")
	r, addr := wire(t, f.gate("a"))
	var got []Event
	each := func(e Event) error { got = append(got, e); return nil }
	if err := r.Follow(t.Context(), addr, "t", "h", each); err != nil || len(got) != 2 || got[0].Text != "hi" || got[1].Finish != "stop" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := r.Follow(t.Context(), addr, "t", "failing", each); handoff.CodeOf(err) != handoff.CodeGone {
		t.Errorf("a refusal at its end: %v", err)
	}
	if err := r.Follow(t.Context(), addr, "t", "h", func(Event) error { return io.ErrClosedPipe }); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a listener that left: %v", err)
	}
}

func TestWhoCannotBeReachedIsUnknownAndPlaintextStaysHere(t *testing.T) {
	r := &Remote{}
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	at := steps.ReaderAt{Address: "127.0.0.1:1"}
	if _, err := r.GiveUp(ctx, at, handoff.Attempt{Handoff: "r", Epoch: 1, Nonce: 1}); handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Errorf("nobody there: %v", err)
	}
	at.Address = "gateway.example:443"
	if _, err := r.GiveUp(ctx, at, handoff.Attempt{}); handoff.CodeOf(err) != handoff.CodeDenied || !strings.Contains(err.Error(), "TLS") {
		t.Errorf("plaintext elsewhere: %v", err)
	}
}
