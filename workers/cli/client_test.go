package cli

import (
	"bytes"
	"context"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	submitv1 "github.com/surehand/surehand/contracts/gen/surehand/submit/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
)

// gatewayStub answers as a gateway does.
type gatewayStub struct {
	submitv1.UnimplementedSubmitServer
	asked  *submitv1.SubmitRequest
	key    []string
	fail   *handoff.Error
	silent bool
}

func (g *gatewayStub) Submit(r *submitv1.SubmitRequest, s grpc.ServerStreamingServer[submitv1.SubmitEvent]) error {
	g.asked, g.key = r, metadata.ValueFromIncomingContext(s.Context(), "authorization")
	events := []*submitv1.SubmitEvent{
		{Event: &submitv1.SubmitEvent_Accepted{Accepted: &submitv1.Accepted{Handoff: "h-1", Joined: true}}},
		{Event: &submitv1.SubmitEvent_Delta{Delta: &submitv1.Delta{Text: "It rained", Tokens: 9}}},
	}
	switch {
	case g.fail != nil:
		events = append(events, &submitv1.SubmitEvent{Event: &submitv1.SubmitEvent_Failed{Failed: rpc.Failure(g.fail)}})
	case !g.silent:
		events = append(events, &submitv1.SubmitEvent{Event: &submitv1.SubmitEvent_Finished{Finished: &submitv1.Finished{
			FinishReason: "stop", Usage: &submitv1.Usage{PromptTokens: 12, DirectTokens: 12, CompletionTokens: 9}}}})
	}
	for _, e := range events {
		if err := s.Send(e); err != nil {
			return err
		}
	}
	if g.fail != nil {
		return rpc.Status(g.fail)
	}
	return nil
}

func (g *gatewayStub) Get(_ context.Context, r *submitv1.GetRequest) (*submitv1.Handoff, error) {
	if r.GetHandoff() != "h-1" {
		return nil, rpc.Status(handoff.Errorf(handoff.CodeGone, "no handoff %s", r.GetHandoff()))
	}
	return sample(), nil
}

func (g *gatewayStub) Cancel(context.Context, *submitv1.CancelRequest) (*submitv1.CancelAnswer, error) {
	return &submitv1.CancelAnswer{BeforeCommit: true, Status: "cancelled"}, nil
}

func (g *gatewayStub) List(context.Context, *submitv1.ListRequest) (*submitv1.ListAnswer, error) {
	return &submitv1.ListAnswer{Handoffs: []*submitv1.Handoff{sample()}}, nil
}

// sample is a handoff whose first epoch lost its D.
func sample() *submitv1.Handoff {
	return &submitv1.Handoff{
		Handoff: "h-1", Tenant: "default", Model: "tiny", Status: "completed", Phase: "done", Epoch: 2, Prefill: "p1", Decode: "d2",
		Usage: &submitv1.Usage{PromptTokens: 12, DirectTokens: 10, CachedTokens: 2, CompletionTokens: 9}, Bytes: 3 << 20,
		WorkflowId: "default/h-1", RunId: "run", StartedUnixMs: 1000, EndedUnixMs: 1250,
		Spans: []*submitv1.PhaseSpan{
			{Step: "transfer", Epoch: 2, StartMicros: 60_000, EndMicros: 90_000, Bytes: 3 << 20, Engine: "d2"},
			{Step: "reserve", Epoch: 1, EndMicros: 1_000, Engine: "d1", Code: "capacity"},
			{Step: "prefill", Epoch: 2, StartMicros: 50_000, EndMicros: 85_000, Engine: "p1"},
			{Step: "commit", Epoch: 2, StartMicros: 99_900, EndMicros: 100_000, Engine: "d2"},
		},
	}
}

// gatewayAt serves the stub on a free port.
func gatewayAt(t *testing.T, g *gatewayStub) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	submitv1.RegisterSubmitServer(s, g)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// command runs a command line and gives what it printed.
func command(stdin string, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = Main(args, strings.NewReader(stdin), &out, &errs)
	return status, out.String(), errs.String()
}

func TestSubmitStreamsTheAnswerToStdout(t *testing.T) {
	g := &gatewayStub{}
	at := gatewayAt(t, g)
	t.Setenv("SUREHAND_API_KEY", "sk-1")
	status, out, errs := command("Hello\n", "submit", "--server", at, "--seed", "7", "--temperature", "0", "--stop", "a", "--stop", "b,c", "--key", "k", "-")
	if status != 0 || out != "It rained\n" {
		t.Fatal(status, out, errs)
	}
	if !strings.Contains(errs, "handoff h-1 (joined)") || !strings.Contains(errs, "12 prompt tokens (12 direct, 0 cached, 0 recomputed), 9 generated") {
		t.Error(errs)
	}
	if g.asked.GetPrompt() != "Hello" || g.asked.GetSeed() != 7 || g.asked.Temperature == nil || g.asked.GetTemperature() != 0 || g.asked.GetIdempotencyKey() != "k" {
		t.Error(g.asked)
	}
	if strings.Join(g.asked.GetStop(), "|") != "a|b,c" || strings.Join(g.key, "") != "Bearer sk-1" {
		t.Error(g.asked.GetStop(), g.key)
	}
	if command("", "submit", "--server", at, "hi"); g.asked.Seed != nil {
		t.Error("a seed nobody gave was sent")
	}
}

func TestAFailedStreamIsAFailedCommand(t *testing.T) {
	at := gatewayAt(t, &gatewayStub{fail: handoff.Errorf(handoff.CodeStreamBroken, "D died")})
	if status, out, errs := command("", "submit", "--server", at, "hi"); status != 1 || out != "It rained\n" || !strings.Contains(errs, "stream_broken: D died") {
		t.Fatal(status, out, errs)
	}
	at = gatewayAt(t, &gatewayStub{silent: true})
	if status, _, errs := command("", "submit", "--server", at, "hi"); status != 1 || !strings.Contains(errs, "without its last event") {
		t.Fatal(status, errs)
	}
}

func TestHandoffsAreShown(t *testing.T) {
	at := gatewayAt(t, &gatewayStub{})
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"get", "h-1"}, []string{`"status":`, `"decode":`}},
		{[]string{"list"}, []string{"HANDOFF", "h-1", "completed", "250ms"}},
		{[]string{"cancel", "h-1"}, []string{"h-1 cancelled; the cancel came before its commit"}},
	} {
		status, out, errs := command("", append(c.args, "--server", at)...)
		for _, want := range c.want {
			if status != 0 || !strings.Contains(out, want) {
				t.Errorf("%v: %d %s %s", c.args, status, out, errs)
			}
		}
	}
	if status, _, errs := command("", "get", "h-2", "--server", at); status != 1 || !strings.Contains(errs, "gone: no handoff h-2") {
		t.Error(status, errs)
	}
}

func TestATraceIsAWaterfall(t *testing.T) {
	status, out, errs := command("", "trace", "--width", "20", "h-1", "--server", gatewayAt(t, &gatewayStub{}))
	want := `handoff h-1  tenant default  model tiny
completed  phase done  epoch 2  p1 → d2  3.0 MiB moved
prompt 12 tokens: 10 direct, 2 cached, 0 recomputed; 9 generated
workflow default/h-1  run run

epoch 1
  reserve   d1      │░                   │     0.0 ms +1.0 ms  ✗ capacity

epoch 2
  prefill   p1      │          ███████   │    50.0 ms +35.0 ms
  transfer  d2      │            ██████  │    60.0 ms +30.0 ms  3.0 MiB
  commit    d2      │                   █│    99.9 ms +0.1 ms
`
	if status != 0 || out != want {
		t.Fatalf("%d %s\n%s", status, errs, out)
	}
}

func TestAGatewayThatIsNotThereIsSaid(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	if status, _, errs := command("", "list", "--server", at); status != 1 || !strings.Contains(errs, "gateway at "+at+": unavailable") {
		t.Fatal(status, errs)
	}
}
