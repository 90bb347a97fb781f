package orchestrator

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	submitv1 "github.com/surehand/surehand/contracts/gen/surehand/submit/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/contracts/steps"
	daemon "github.com/surehand/surehand/transferd/client"
)

// Remote asks the readers of other processes over their gateways' gRPC side.
// The zero value speaks plaintext to loopback only.
type Remote struct {
	TLS *tls.Config
	Key string // shown to other gateways; empty: none
	// Silence is for how long a host may answer no packet; 0: daemon.Silence.
	Silence time.Duration

	mu    sync.Mutex
	conns map[string]*grpc.ClientConn
}

func (r *Remote) client(address string) (submitv1.ReaderClient, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.conns[address]; c != nil {
		return submitv1.NewReaderClient(c), nil
	}
	creds := credentials.TransportCredentials(insecure.NewCredentials())
	if r.TLS != nil {
		creds = credentials.NewTLS(r.TLS)
	} else if host, _, err := net.SplitHostPort(address); err != nil || !(host == "localhost" || net.ParseIP(host).IsLoopback()) {
		return nil, handoff.Errorf(handoff.CodeDenied, "plaintext to reader %q, which is not loopback: use TLS", address)
	}
	retry := backoff.DefaultConfig
	retry.BaseDelay, retry.MaxDelay = remoteBackoff/10, remoteBackoff
	c, err := grpc.NewClient("passthrough:///"+address, append(daemon.DialOptions(r.Silence), grpc.WithTransportCredentials(creds), grpc.WithPerRPCCredentials(fleetKey(r.Key)), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: remoteBackoff}))...)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeInvalid, "reader address %q: %s", address, err.Error())
	}
	if r.conns == nil {
		r.conns = map[string]*grpc.ClientConn{}
	}
	r.conns[address] = c
	return submitv1.NewReaderClient(c), nil
}

// fleetKey is shown with each call. The connection is TLS or loopback, see client.
type fleetKey string

func (k fleetKey) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if k == "" {
		return nil, nil
	}
	return map[string]string{"authorization": "Bearer " + string(k)}, nil
}

func (k fleetKey) RequireTransportSecurity() bool { return false }

const remoteBackoff = 500 * time.Millisecond // longest wait before the next try to connect

// Close ends every connection.
func (r *Remote) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, c := range r.conns {
		errs = append(errs, c.Close())
	}
	r.conns = nil
	return errors.Join(errs...)
}

// GiveUp asks the reader at its address; its process and incarnation are in the
// question, so another life answers with a refusal, never in its stead.
func (r *Remote) GiveUp(ctx context.Context, at steps.ReaderAt, a handoff.Attempt) (bool, error) {
	c, err := r.client(at.Address)
	if err != nil {
		return false, err
	}
	ans, err := c.GiveUp(ctx, &submitv1.GiveUpRequest{Attempt: rpc.Attempt(a), Reader: rpc.Reader(at.Reader)})
	return ans.GetGivenUp(), rpc.FromStatus(err)
}

// Planned names the newest planned attempt.
func (r *Remote) Planned(ctx context.Context, at steps.ReaderAt, p handoff.Plan, route steps.Route, token handoff.Token) error {
	c, err := r.client(at.Address)
	if err != nil {
		return err
	}
	_, err = c.Planned(ctx, &submitv1.PlannedRequest{Plan: rpc.Plan(p), P: wireEndpoint(route.P), D: wireEndpoint(route.D), Token: rpc.Token(token), Reader: rpc.Reader(at.Reader)})
	return rpc.FromStatus(err)
}

// Ended says how the handoff ended without a stream.
func (r *Remote) Ended(ctx context.Context, at steps.ReaderAt, a handoff.Attempt, code handoff.Code, detail string) error {
	c, err := r.client(at.Address)
	if err != nil {
		return err
	}
	_, err = c.Ended(ctx, &submitv1.EndedRequest{Attempt: rpc.Attempt(a), Reader: rpc.Reader(at.Reader), Failure: rpc.Failure(&handoff.Error{Code: code, Detail: detail})})
	return rpc.FromStatus(err)
}

// Follow reads another gateway's stream from its first token on.
func (r *Remote) Follow(ctx context.Context, address, tenant, id string, each func(Event) error) error {
	c, err := r.client(address)
	if err != nil {
		return err
	}
	st, err := c.Follow(ctx, &submitv1.FollowRequest{Handoff: id, Tenant: tenant})
	if err != nil {
		return rpc.FromStatus(err)
	}
	for {
		m, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return rpc.FromStatus(err)
		}
		e, ok := fromWire(m)
		if !ok {
			continue
		}
		if err := each(e); err != nil {
			return err
		}
	}
}

// fromWire reads an event; Accepted is none.
func fromWire(m *submitv1.SubmitEvent) (Event, bool) {
	switch {
	case m.GetDelta() != nil:
		d := m.GetDelta()
		return Event{Position: d.GetPosition(), Tokens: d.GetTokens(), Text: d.GetText(), Epoch: handoff.Epoch(d.GetEpoch())}, true
	case m.GetFinished() != nil:
		u := m.GetFinished().GetUsage()
		return Event{Position: m.GetFinished().GetPosition(), Finish: m.GetFinished().GetFinishReason(), Usage: Usage{Prompt: u.GetPromptTokens(), Completion: u.GetCompletionTokens(),
			Direct: u.GetDirectTokens(), Cached: u.GetCachedTokens(), Recomputed: u.GetRecomputedTokens()}}, true
	case m.GetResumed() != nil:
		r := m.GetResumed()
		return Event{Epoch: handoff.Epoch(r.GetToEpoch()), Position: r.GetPosition(),
			Resumed: &steps.Resumed{From: handoff.Epoch(r.GetFromEpoch()), Position: r.GetPosition()}}, true
	case m.GetFailed() != nil:
		f := m.GetFailed()
		return Event{Err: &handoff.Error{Code: handoff.ParseCode(f.GetCode()), Detail: f.GetDetail()}}, true
	}
	return Event{}, false
}

func wireEndpoint(e steps.Endpoint) *submitv1.Endpoint {
	return &submitv1.Endpoint{Engine: e.Engine, Control: e.Control, Peer: e.Peer}
}

// PlannedFromWire is Planned for the gRPC side of the gateway.
// Another life of this address must not speak for the reader that is meant.
func (o *Orchestrator) PlannedFromWire(ctx context.Context, m *submitv1.PlannedRequest) error {
	if r := rpc.FromReader(m.GetReader()); !o.local(steps.ReaderAt{Reader: r}) {
		return handoff.Errorf(handoff.CodeStaleIncarnation, "this is reader %s of another life", o.cfg.Process)
	}
	p, err := rpc.FromPlan(m.GetPlan())
	if err != nil {
		return err
	}
	token, err := rpc.FromToken(m.GetToken())
	if err != nil {
		return err
	}
	end := func(e *submitv1.Endpoint) steps.Endpoint {
		return steps.Endpoint{Engine: e.GetEngine(), Control: e.GetControl(), Peer: e.GetPeer()}
	}
	return o.Planned(ctx, p, steps.Route{P: end(m.GetP()), D: end(m.GetD())}, token)
}

// EndedFromWire is Ended for the gRPC side of the gateway.
func (o *Orchestrator) EndedFromWire(ctx context.Context, m *submitv1.EndedRequest) error {
	a, err := rpc.FromAttempt(m.GetAttempt())
	if err != nil {
		return err
	}
	if r := rpc.FromReader(m.GetReader()); !o.local(steps.ReaderAt{Reader: r}) {
		return handoff.Errorf(handoff.CodeStaleIncarnation, "this is reader %s of another life", o.cfg.Process)
	}
	return o.Ended(ctx, a, handoff.ParseCode(m.GetFailure().GetCode()), m.GetFailure().GetDetail())
}
