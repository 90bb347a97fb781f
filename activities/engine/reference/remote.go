package reference

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/surehand/surehand/activities/engine"
	enginev1 "github.com/surehand/surehand/contracts/gen/surehand/engine/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
)

// framing is what the engine adds to a prompt: a token that begins it and one
// that ends it. Every byte between is a token.
const framing = 2

// PromptTokens counts a prompt's tokens as the reference engine does.
func PromptTokens(prompt []byte) uint32 { return uint32(len(prompt) + framing) }

// askAgain is after how long a prefill whose stream broke is asked for again:
// by then a process that died listens no more.
const askAgain = 50 * time.Millisecond

// remote speaks to one engine. It keeps no state: idempotence is the engine's.
type remote struct {
	client enginev1.EngineClient
	conn   *connection
}

var _ engine.Tokenizer = (*remote)(nil)

func (r *remote) Describe(ctx context.Context) (engine.Description, error) {
	m, err := r.client.Describe(ctx, &enginev1.DescribeRequest{})
	if err != nil {
		return engine.Description{}, rpc.FromStatus(err)
	}
	return fromDescription(m)
}

func (r *remote) Reserve(ctx context.Context, q engine.Reservation) (engine.Reserved, error) {
	m := &enginev1.ReserveRequest{Plan: rpc.Plan(q.Plan), PromptTokens: q.PromptTokens, Sampling: sampling(q.Sampling),
		TenantSalt: q.TenantSalt, LeaseMs: q.Lease.Milliseconds(), Revision: q.Revision, Prompt: q.Prompt}
	if !q.Layout.IsZero() {
		m.Layout = q.Layout[:]
	}
	a, err := r.client.Reserve(ctx, m)
	if err != nil {
		return engine.Reserved{}, r.dead(rpc.FromStatus(err))
	}
	token, err := rpc.FromToken(a.GetToken())
	if err != nil {
		return engine.Reserved{}, err
	}
	if token.Attempt != q.Plan.Attempt {
		return engine.Reserved{}, handoff.Errorf(handoff.CodeInternal, "asked to reserve %s, answered %s", q.Plan.Attempt, token)
	}
	return engine.Reserved{Token: token, Blocks: a.GetBlocks()}, nil
}

// Prefill asks once more, at once, when the stream breaks: P joins its run, or is
// found dead. Temporal would repeat a normal activity only after a second or so.
func (r *remote) Prefill(ctx context.Context, q engine.Prefill, opened func(engine.Opened), progress func(uint32)) (engine.Sealed, error) {
	known := false
	once := func(o engine.Opened) {
		if !known && opened != nil {
			opened(o)
		}
		known = true
	}
	sealed, err := r.prefill(ctx, q, once, progress)
	if handoff.CodeOf(err) != handoff.CodeUnavailable {
		return sealed, r.dead(err)
	}
	select {
	case <-time.After(askAgain):
		sealed, err = r.prefill(ctx, q, once, progress)
	case <-ctx.Done():
	}
	return sealed, r.dead(err)
}

// dead tells an engine that is no more from one that does not answer: where nobody
// listens, its process died, and what it had begun died with it. To repeat the
// order would find nothing, and another epoch need not wait for that.
func (r *remote) dead(err error) error {
	if handoff.CodeOf(err) == handoff.CodeUnavailable && r.conn.refused.Load() {
		return handoff.Errorf(handoff.CodeEngine, "nobody listens at the engine's address")
	}
	return err
}

func (r *remote) prefill(ctx context.Context, q engine.Prefill, opened func(engine.Opened), progress func(uint32)) (engine.Sealed, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a stream that is not read to its end is left, and the run goes on
	stream, err := r.client.Prefill(ctx, &enginev1.PrefillRequest{Plan: rpc.Plan(q.Plan), Prompt: q.Prompt, Answered: q.Answered, Sampling: sampling(q.Sampling),
		TenantSalt: q.TenantSalt, LeaseMs: q.Lease.Milliseconds(), Holder: string(q.Plan.D.Node)})
	if err != nil {
		return engine.Sealed{}, rpc.FromStatus(err)
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return engine.Sealed{}, ended(err)
		}
		switch e := m.GetEvent().(type) {
		case *enginev1.PrefillEvent_Opened:
			opened(engine.Opened{Capability: e.Opened.GetCapability(), SourceAddress: e.Opened.GetSourceAddress(), PromptTokens: e.Opened.GetPromptTokens()})
		case *enginev1.PrefillEvent_Progress:
			if progress != nil {
				progress(e.Progress.GetTokens())
			}
		case *enginev1.PrefillEvent_Sealed:
			s := e.Sealed
			return engine.Sealed{PromptTokens: s.GetPromptTokens(), CachedTokens: s.GetCachedTokens(),
				Compute: time.Duration(s.GetComputeMicros()) * time.Microsecond}, nil
		}
	}
}

func (r *remote) Attach(ctx context.Context, plan handoff.Plan, token handoff.Token, from uint32, each func(engine.DecodeEvent) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := r.client.Attach(ctx, &enginev1.AttachRequest{Plan: rpc.Plan(plan), Token: rpc.Token(token), From: from})
	if err != nil {
		return rpc.FromStatus(err)
	}
	for next := from; ; {
		m, err := stream.Recv()
		if err != nil {
			return ended(err)
		}
		if err := rpc.FromFailure(m.GetFailure()); err != nil {
			return err
		}
		if m.GetPosition() != next { // a gap or a repeat would break S10
			return handoff.Errorf(handoff.CodeInternal, "event at position %d, want %d", m.GetPosition(), next)
		}
		next += m.GetTokens()
		if err := each(fromEvent(m)); err != nil {
			return err
		}
		if m.GetFinishReason() != "" {
			return nil
		}
	}
}

func (r *remote) Cancel(ctx context.Context, plan handoff.Plan) (bool, error) {
	a, err := r.client.Cancel(ctx, &enginev1.CancelRequest{Plan: rpc.Plan(plan)})
	if err != nil {
		return false, rpc.FromStatus(err)
	}
	return a.GetKnown(), nil
}

func (r *remote) Tokenize(ctx context.Context, t engine.Text) (engine.Tokenized, error) {
	m := &enginev1.TokenizeRequest{Prompt: t.Prompt}
	for _, turn := range t.Messages {
		m.Messages = append(m.Messages, &enginev1.ChatMessage{Role: turn.Role, Content: turn.Content})
	}
	a, err := r.client.Tokenize(ctx, m)
	if err != nil {
		return engine.Tokenized{}, rpc.FromStatus(err)
	}
	if a.GetTokens() == 0 || len(a.GetPrompt()) == 0 {
		return engine.Tokenized{}, handoff.Errorf(handoff.CodeInternal, "the engine made a prompt of %d bytes and %d tokens", len(a.GetPrompt()), a.GetTokens())
	}
	return engine.Tokenized{Prompt: a.GetPrompt(), Tokens: a.GetTokens()}, nil
}

// ended types a stream's end before its last event: nothing is known then.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return handoff.Errorf(handoff.CodeUnavailable, "the engine ended the stream early")
	}
	return rpc.FromStatus(err)
}
