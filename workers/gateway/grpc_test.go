package gateway

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	submitv1 "github.com/surehand/surehand/contracts/gen/surehand/submit/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/workers/orchestrator"
)

func (r *running) dial(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(r.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// follow reads a stream to its end.
func follow(stream grpc.ServerStreamingClient[submitv1.SubmitEvent]) (out []*submitv1.SubmitEvent, err error) {
	for {
		e, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, e)
	}
}

func TestASubmitStreamsFromAcceptedToFinished(t *testing.T) {
	f := newFront()
	r := serve(t, f)
	seed, hot := uint64(7), 0.0
	stream, err := submitv1.NewSubmitClient(r.dial(t)).Submit(t.Context(), &submitv1.SubmitRequest{
		Model: "tiny", Prompt: "Hi", MaxTokens: 9, Seed: &seed, Temperature: &hot, IdempotencyKey: "again", Tenant: "blue", DeadlineMs: 700, Prefill: "p1", Decode: "d1"})
	if err != nil {
		t.Fatal(err)
	}
	events, err := follow(stream)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, e := range events {
		text += e.GetDelta().GetText()
	}
	last := events[len(events)-1].GetFinished()
	if a := events[0].GetAccepted(); a.GetHandoff() != "h-1" || !a.GetJoined() || text != "Hello, world" || last.GetFinishReason() != "stop" ||
		last.GetUsage().GetDirectTokens() != 6 || last.GetUsage().GetCompletionTokens() != 12 {
		t.Fatal(events)
	}
	q := f.last(t)
	if q.Tenant != "blue" || q.Sampling.Seed != 7 || q.Sampling.Temperature != 0 || q.Sampling.MaxTokens != 9 || q.Deadline != 700*time.Millisecond || q.Prefill != "p1" || q.Decode != "d1" {
		t.Fatalf("%+v", q)
	}
}

func TestASubmitAndItsHTTPTwinHaveOneDigest(t *testing.T) {
	f := newFront()
	r := serve(t, f)
	all(t, r.post(t, "/v1/chat/completions", `{"model":"tiny","messages":[{"role":"user","content":"Hi"}],"max_tokens":5}`))
	overHTTP := f.last(t).Body
	stream, err := submitv1.NewSubmitClient(r.dial(t)).Submit(t.Context(), &submitv1.SubmitRequest{
		Model: "tiny", Messages: []*submitv1.Message{{Role: "user", Content: "Hi"}}, MaxTokens: 5})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := follow(stream); err != nil {
		t.Fatal(err)
	}
	if f.last(t).Body != overHTTP {
		t.Fatal("a client that changes its surface is another request")
	}
}

func TestBadSubmitsAreInvalid(t *testing.T) {
	f := newFront()
	client := submitv1.NewSubmitClient(serve(t, f).dial(t))
	nan := 0.0
	nan /= nan
	for name, q := range map[string]*submitv1.SubmitRequest{
		"empty":         {},
		"no prompt":     {Model: "tiny"},
		"both":          {Model: "tiny", Prompt: "x", Messages: []*submitv1.Message{{Role: "user", Content: "x"}}},
		"role":          {Model: "tiny", Messages: []*submitv1.Message{{Role: "robot", Content: "x"}}},
		"unknown model": {Model: "huge", Prompt: "x"},
		"temperature":   {Model: "tiny", Prompt: "x", Temperature: &nan},
		"top_p":         {Model: "tiny", Prompt: "x", TopP: new(float64)},
		"tenant":        {Model: "tiny", Prompt: "x", Tenant: "A B"},
		"deadline":      {Model: "tiny", Prompt: "x", DeadlineMs: -1},
		"key":           {Model: "tiny", Prompt: "x", IdempotencyKey: "a\nb"},
	} {
		stream, err := client.Submit(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		_, err = follow(stream)
		if status.Code(err) != codes.InvalidArgument || handoff.CodeOf(rpc.FromStatus(err)) != handoff.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if f.count() != 0 {
		t.Error("something was submitted")
	}
}

func TestAFailureIsAnEventAndTheStatusBoth(t *testing.T) {
	f := newFront()
	f.script = func(orchestrator.Request) ([]orchestrator.Event, error) {
		return []orchestrator.Event{{Text: "Hel", Tokens: 3}, {Err: handoff.Errorf(handoff.CodeStreamBroken, "D died")}}, nil
	}
	stream, err := submitv1.NewSubmitClient(serve(t, f).dial(t)).Submit(t.Context(), &submitv1.SubmitRequest{Model: "tiny", Prompt: "Hi"})
	if err != nil {
		t.Fatal(err)
	}
	events, err := follow(stream)
	if got := events[len(events)-1].GetFailed(); got.GetCode() != "stream_broken" || handoff.CodeOf(rpc.FromStatus(err)) != handoff.CodeStreamBroken {
		t.Fatal(events, err)
	}
}

func TestASubmitThatIsLeftClosesItsFollower(t *testing.T) {
	f := halfway()
	ctx, leave := context.WithCancel(t.Context())
	stream, err := submitv1.NewSubmitClient(serve(t, f).dial(t)).Submit(ctx, &submitv1.SubmitRequest{Model: "tiny", Prompt: "Hi"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	leave()
	within(t, f.closed, "close")
}

func TestASubmitThatOutlivesTheGraceFails(t *testing.T) {
	f := halfway()
	r := serve(t, f, func(c *Config) { c.Grace = 50 * time.Millisecond })
	stream, err := submitv1.NewSubmitClient(r.dial(t)).Submit(t.Context(), &submitv1.SubmitRequest{Model: "tiny", Prompt: "Hi"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	done := r.drained()
	if _, err := follow(stream); handoff.CodeOf(rpc.FromStatus(err)) != handoff.CodeUnavailable {
		t.Fatal(err)
	}
	if err := within(t, done, "end of the drain"); err != nil {
		t.Fatal(err)
	}
}

func TestHandoffsAreLookedAtListedAndCancelled(t *testing.T) {
	f := newFront()
	f.handoffs = map[string]*submitv1.Handoff{"h-1": {Handoff: "h-1", Status: "completed"}, "h-2": {Handoff: "h-2", Status: "running"}}
	client := submitv1.NewSubmitClient(serve(t, f).dial(t))
	if h, err := client.Get(t.Context(), &submitv1.GetRequest{Handoff: "h-1"}); err != nil || h.GetStatus() != "completed" {
		t.Error(h, err)
	}
	if _, err := client.Get(t.Context(), &submitv1.GetRequest{Handoff: "h-9"}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
	if _, err := client.Get(t.Context(), &submitv1.GetRequest{Handoff: "no id"}); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
	if l, err := client.List(t.Context(), &submitv1.ListRequest{Status: "running"}); err != nil || len(l.GetHandoffs()) != 1 {
		t.Error(l, err)
	}
	for _, bad := range []*submitv1.ListRequest{{Status: "odd"}, {Limit: MaxListed + 1}} {
		if _, err := client.List(t.Context(), bad); status.Code(err) != codes.InvalidArgument {
			t.Error(bad, err)
		}
	}
	if c, err := client.Cancel(t.Context(), &submitv1.CancelRequest{Handoff: "h-1"}); err != nil || c.GetBeforeCommit() || c.GetStatus() != "completed" {
		t.Error(c, err)
	}
	if c, err := client.Cancel(t.Context(), &submitv1.CancelRequest{Handoff: "h-2"}); err != nil || c.GetStatus() != "cancelled" {
		t.Error("a stream that was cancelled after its commit:", c, err)
	}
	f.before = true
	if c, err := client.Cancel(t.Context(), &submitv1.CancelRequest{Handoff: "h-2"}); err != nil || !c.GetBeforeCommit() || c.GetStatus() != "cancelled" {
		t.Error(c, err)
	}
}

func TestAGRPCCallerShowsItsKey(t *testing.T) {
	blue := file(t, "tenants: {blue: {keys: [KEY(sk-blue)]}}")
	client := submitv1.NewSubmitClient(serve(t, newFront(), func(c *Config) { c.Access = blue }).dial(t))
	if _, err := client.List(t.Context(), &submitv1.ListRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Error(err)
	}
	known := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer sk-blue")
	if _, err := client.List(known, &submitv1.ListRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := client.List(known, &submitv1.ListRequest{Tenant: "red"}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
}

func TestWorkersReachTheReader(t *testing.T) {
	f := newFront()
	client := submitv1.NewReaderClient(serve(t, f).dial(t))
	attempt := rpc.Attempt(handoff.Attempt{Handoff: "h-1", Epoch: 1, Nonce: 5})
	for process, want := range map[string]bool{"me": true, "another": false} {
		got, err := client.GiveUp(t.Context(), &submitv1.GiveUpRequest{Attempt: attempt, Reader: rpc.Reader(handoff.Reader{Process: process, Incarnation: 3})})
		if err != nil || got.GetGivenUp() != want {
			t.Error(got, err)
		}
	}
	if _, err := client.GiveUp(t.Context(), &submitv1.GiveUpRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
	if _, err := client.Planned(t.Context(), &submitv1.PlannedRequest{}); err != nil || len(f.planned) != 1 {
		t.Error(err)
	}
	if _, err := client.Ended(t.Context(), &submitv1.EndedRequest{Attempt: attempt}); err != nil || len(f.ended) != 1 {
		t.Error(err)
	}
	stream, err := client.Follow(t.Context(), &submitv1.FollowRequest{Handoff: "h-1", Tenant: "default"})
	if err != nil {
		t.Fatal(err)
	}
	if events, err := follow(stream); err != nil || events[1].GetDelta().GetText() != "abc" {
		t.Error(events, err)
	}
	stream, err = client.Follow(t.Context(), &submitv1.FollowRequest{Handoff: "h-9", Tenant: "default"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := follow(stream); handoff.CodeOf(rpc.FromStatus(err)) != handoff.CodeGone {
		t.Error(err)
	}
}

func TestHealthFollowsReadiness(t *testing.T) {
	f := newFront()
	r := serve(t, f)
	client := grpc_health_v1.NewHealthClient(r.dial(t))
	serving := func() grpc_health_v1.HealthCheckResponse_ServingStatus {
		res, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		return res.GetStatus()
	}
	for deadline := time.Now().Add(10 * time.Second); serving() != grpc_health_v1.HealthCheckResponse_SERVING; {
		if time.Now().After(deadline) {
			t.Fatal("never serving")
		}
	}
}

func TestTheServicesDescribeThemselves(t *testing.T) {
	stream, err := grpc_reflection_v1.NewServerReflectionClient(serve(t, newFront()).dial(t)).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	res, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, s := range res.GetListServicesResponse().GetService() {
		names[s.GetName()] = true
	}
	if !names["surehand.submit.v1.Submit"] || !names["surehand.submit.v1.Reader"] || !names["grpc.health.v1.Health"] {
		t.Fatal(names)
	}
}
