package client

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/contracts/tracing"
)

// Control speaks to the control side of one transferd. Safe for concurrent use.
type Control struct {
	conn *grpc.ClientConn
	rpc  transferv1.TransferClient
}

// window is how many bytes a daemon may send ahead of one call's reader. Windows
// that grow have gRPC measure the way with a ping at every answer.
const window = 64 << 10

// Option changes how Dial connects.
type Option func(*options)

type options struct {
	tls     *tls.Config
	silence time.Duration
}

// WithTLS speaks mutual TLS, as every address off loopback must.
func WithTLS(cfg *tls.Config) Option { return func(o *options) { o.tls = cfg } }

// WithSilence gives up a host that answers no packet for so long; 0: Silence.
func WithSilence(d time.Duration) Option { return func(o *options) { o.silence = d } }

// Dial prepares a connection to unix:///path or host:port; it connects at the
// first call. Plaintext to another host is refused.
func Dial(address string, opts ...Option) (*Control, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	creds := insecure.NewCredentials()
	target := address
	if o.tls != nil {
		creds = credentials.NewTLS(o.tls)
	}
	dialing := []grpc.DialOption{Keepalive(o.silence)}
	if !strings.HasPrefix(address, "unix:") {
		dialing = DialOptions(o.silence)
		target = "passthrough:///" + address
		if o.tls == nil && !isLoopback(address) {
			return nil, handoff.Errorf(handoff.CodeDenied, "plaintext to %s, which is not loopback: use TLS", address)
		}
	}
	conn, err := grpc.NewClient(target, append(append(dialing, tracing.DialOptions()...), grpc.WithTransportCredentials(creds),
		grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(16*window),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: backoffMin, Multiplier: 2, Jitter: 0.2, MaxDelay: backoffMax},
			MinConnectTimeout: time.Second,
		}))...)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeInvalid, "control address %q: %s", address, err)
	}
	return &Control{conn: conn, rpc: transferv1.NewTransferClient(conn)}, nil
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Close ends the connection; calls that run fail with CodeUnavailable.
func (c *Control) Close() error { return rpc.FromStatus(c.conn.Close()) }

// Sides says which sides of an attempt, of those that lie at this daemon, an
// operation is for.
type Sides struct{ Target, Source bool }

// PullSpec is what D's transferd needs to read the state of an attempt.
type PullSpec struct {
	Plan             handoff.Plan
	Token            handoff.Token
	SourceAddress    string // host:port of TP's peer side; more of them, by commas, are further rails
	Capability       []byte
	ProgressDeadline time.Duration // zero: the daemon's default
	Unchecked        bool          // no checksums, where both daemons allow it
	Require          string        // the only lane that may be used: local, tcp; empty: the best that reaches
}

// Progress is how far a pull is.
type Progress struct {
	State         handoff.TargetState
	Pieces, Total uint32
	Bytes         uint64
	Lane          string // the transport that is used: local, tcp; empty before the source was reached
}

// PullResult is what a finished pull did; the target is validated.
type PullResult struct {
	Bytes      uint64
	Pieces     uint32
	Lane       string // the transport that was really used: local, tcp
	Manifest   handoff.Digest
	WireMicros uint64 // from the first read posted to the last byte landed
	// ScatterMicros is what of it went into scattering staged pieces into place.
	ScatterMicros uint64
	Repulled      uint32 // pieces whose digest differed and that were read again
}

// Pull reads the source into the open target, verifies it and asks the question
// of the validated read. A repeat joins the pull that runs, or answers its
// result. Ending ctx leaves the pull running: Undo or Release ends it.
func (c *Control) Pull(ctx context.Context, spec PullSpec, progress func(Progress)) (PullResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.rpc.Pull(ctx, &transferv1.PullRequest{Plan: rpc.Plan(spec.Plan), Token: rpc.Token(spec.Token),
		SourceAddress: spec.SourceAddress, Capability: spec.Capability, ProgressDeadlineMs: spec.ProgressDeadline.Milliseconds(), Require: spec.Require, Unchecked: spec.Unchecked})
	if err != nil {
		return PullResult{}, rpc.FromStatus(err)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return PullResult{}, handoff.Errorf(handoff.CodeUnavailable, "the pull's stream ended without a result")
		}
		if err != nil {
			return PullResult{}, rpc.FromStatus(err)
		}
		if m.GetDone() {
			return pullResult(m)
		}
		state, err := rpc.FromTargetState(m.GetState())
		if err != nil {
			return PullResult{}, err
		}
		if progress != nil {
			progress(Progress{State: state, Pieces: m.GetPiecesLanded(), Total: m.GetPieces(), Bytes: m.GetBytesLanded(), Lane: m.GetLane()})
		}
	}
}

func pullResult(m *transferv1.PullProgress) (PullResult, error) {
	r := PullResult{Bytes: m.GetBytesLanded(), Pieces: m.GetPiecesLanded(), Lane: m.GetLane(),
		WireMicros: m.GetWireMicros(), ScatterMicros: m.GetScatterMicros(), Repulled: m.GetRepulledPieces()}
	if len(m.GetManifestDigest()) != len(r.Manifest) {
		return PullResult{}, handoff.Errorf(handoff.CodeInternal, "manifest digest of %d bytes", len(m.GetManifestDigest()))
	}
	copy(r.Manifest[:], m.GetManifestDigest())
	return r, nil
}

// TargetAnswer is the present state of a target.
type TargetAnswer struct {
	State handoff.TargetState
	Token handoff.Token
}

// Commit makes a validated target visible to its engine, once.
func (c *Control) Commit(ctx context.Context, plan handoff.Plan, token handoff.Token, op handoff.OperationID, lease time.Duration) (TargetAnswer, error) {
	m, err := c.rpc.Commit(ctx, &transferv1.CommitRequest{Plan: rpc.Plan(plan), Token: rpc.Token(token), Operation: string(op), LeaseMs: lease.Milliseconds()})
	if err != nil {
		return TargetAnswer{}, rpc.FromStatus(err)
	}
	state, err := rpc.FromTargetState(m.GetState())
	if err != nil {
		return TargetAnswer{}, err
	}
	t, err := rpc.FromToken(m.GetToken())
	return TargetAnswer{State: state, Token: t}, err
}

// CloseAnswer is the present state of both sides after a close.
type CloseAnswer struct {
	Target    handoff.TargetState
	Source    handoff.SourceState
	Validated bool          // TP once said yes: the target may be committed, or may yet be
	Drained   bool          // nothing can touch the memory of the sides asked for any more
	Token     handoff.Token // of the target; zero when it was never open here
}

// Undo closes an uncommitted attempt; a commit stays, and the answer says so.
func (c *Control) Undo(ctx context.Context, plan handoff.Plan, op handoff.OperationID, sides Sides) (CloseAnswer, error) {
	return closeAnswer(c.rpc.Undo(ctx, closeRequest(plan, op, sides)))
}

// Release ends an attempt whatever its state.
func (c *Control) Release(ctx context.Context, plan handoff.Plan, op handoff.OperationID, sides Sides) (CloseAnswer, error) {
	return closeAnswer(c.rpc.Release(ctx, closeRequest(plan, op, sides)))
}

// Drain waits until nothing can touch the attempt's memory any more. When ctx
// ends first the answer is CodeNotReady or CodeUnavailable: ask again.
func (c *Control) Drain(ctx context.Context, plan handoff.Plan, sides Sides) (CloseAnswer, error) {
	return closeAnswer(c.rpc.Drain(ctx, &transferv1.DrainRequest{Plan: rpc.Plan(plan), Target: sides.Target, Source: sides.Source}))
}

func closeRequest(plan handoff.Plan, op handoff.OperationID, s Sides) *transferv1.CloseRequest {
	return &transferv1.CloseRequest{Plan: rpc.Plan(plan), Operation: string(op), Target: s.Target, Source: s.Source}
}

func closeAnswer(m *transferv1.CloseAnswer, err error) (CloseAnswer, error) {
	if err != nil {
		return CloseAnswer{}, rpc.FromStatus(err)
	}
	target, err := rpc.FromTargetState(m.GetTarget())
	if err != nil {
		return CloseAnswer{}, err
	}
	source, err := rpc.FromSourceState(m.GetSource())
	if err != nil {
		return CloseAnswer{}, err
	}
	a := CloseAnswer{Target: target, Source: source, Validated: m.GetSourceValidated(), Drained: m.GetDrained()}
	if m.GetToken() != nil {
		a.Token, err = rpc.FromToken(m.GetToken())
	}
	return a, err
}

// Renew prolongs the leases of targets (reservation or decode) and sources, and
// answers which of them are closed, aborted or unknown here.
func (c *Control) Renew(ctx context.Context, targets, sources []handoff.Attempt, lease time.Duration) ([]handoff.Attempt, error) {
	return c.renew(ctx, &transferv1.RenewRequest{Targets: rpc.Attempts(targets), Sources: rpc.Attempts(sources), LeaseMs: lease.Milliseconds()})
}

// RenewDecode is Renew said by the reader of the targets' streams. Once a reader
// of a higher number renewed a decode, an older one is answered that it lost it.
func (c *Control) RenewDecode(ctx context.Context, targets []handoff.Attempt, reader handoff.Reader, lease time.Duration) ([]handoff.Attempt, error) {
	return c.renew(ctx, &transferv1.RenewRequest{Targets: rpc.Attempts(targets), LeaseMs: lease.Milliseconds(), ReaderNumber: reader.Number})
}

func (c *Control) renew(ctx context.Context, request *transferv1.RenewRequest) ([]handoff.Attempt, error) {
	m, err := c.rpc.Renew(ctx, request)
	if err != nil {
		return nil, rpc.FromStatus(err)
	}
	return rpc.FromAttempts(m.GetLost())
}

// Describe tells what the daemon holds; with attempts, each of them.
func (c *Control) Describe(ctx context.Context, attempts bool) (*transferv1.Description, error) {
	m, err := c.rpc.Describe(ctx, &transferv1.DescribeRequest{Attempts: attempts})
	return m, rpc.FromStatus(err)
}

// Watch calls each for every trace event until ctx ends or the stream breaks; it
// always returns an error.
func (c *Control) Watch(ctx context.Context, each func(*transferv1.TraceEvent)) error {
	stream, err := c.rpc.Watch(ctx, &transferv1.WatchRequest{})
	for err == nil {
		var m *transferv1.TraceEvent
		if m, err = stream.Recv(); err == nil {
			each(m)
		}
	}
	return rpc.FromStatus(err)
}
