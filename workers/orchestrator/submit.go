package orchestrator

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"strings"
	"time"

	"github.com/surehand/surehand/activities"
	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

var idText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// publicID is the handoff's public name: derived from tenant and key, or random.
func publicID(r Request) (string, error) {
	if r.Key == "" {
		return "h" + strings.ToLower(rand.Text()), nil
	}
	sum := sha256.Sum256([]byte("surehand id\x00" + r.Tenant + "\x00" + r.Key))
	return "k" + idText.EncodeToString(sum[:16]), nil
}

// runID is the protocol's name of one run of a handoff: a later run of the same
// key, after a refusal, must not meet the tombstones of the earlier one.
func runID(id string, n handoff.Nonce) handoff.HandoffID {
	return handoff.HandoffID(id + "." + n.String())
}

func keyHash(r Request) string {
	if r.Key == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("surehand key\x00" + r.Key))
	return hex.EncodeToString(sum[:16])
}

// Submit joins the handoff of the request's key, or begins one. It answers as
// soon as the request is placed and its key is claimed; what happens later is
// told by the stream.
func (o *Orchestrator) Submit(ctx context.Context, r Request) (Follower, error) {
	if err := o.validate(&r); err != nil {
		return nil, err
	}
	id, err := publicID(r)
	if err != nil {
		return nil, err
	}
	f, s, made, err := o.hub.join(r.Tenant, id, r.Body)
	if err != nil || !made {
		return f, err
	}
	if err := o.begin(ctx, s, id, r); err != nil {
		o.refuse(s, err)
		return nil, err
	}
	return f, nil
}

// refuse ends a stream whose handoff never began.
func (o *Orchestrator) refuse(s *stream, err error) {
	e := &handoff.Error{Code: handoff.CodeOf(err), Detail: err.Error()}
	o.over(s, e.Code.String())
	s.fail(e)
}

func (o *Orchestrator) validate(r *Request) error {
	if err := handoff.ValidateID("tenant", r.Tenant); err != nil {
		return err
	}
	switch n := len(r.Prompt); {
	case n == 0:
		return handoff.Errorf(handoff.CodeInvalid, "prompt is empty")
	case n > handoff.MaxPromptTokens:
		return handoff.Errorf(handoff.CodeTooLarge, "prompt has %d bytes, limit %d", n, handoff.MaxPromptTokens)
	case r.Sampling.MaxTokens == 0:
		return handoff.Errorf(handoff.CodeInvalid, "max_tokens is 0, want at least 1")
	case r.Body.IsZero():
		return handoff.Errorf(handoff.CodeInvalid, "body digest is zero")
	case len(r.Key) > 256:
		return handoff.Errorf(handoff.CodeInvalid, "idempotency key has %d bytes, limit 256", len(r.Key))
	}
	if r.Deadline <= 0 || r.Deadline > o.cfg.Deadline {
		r.Deadline = o.cfg.Deadline
	}
	return nil
}

// begin places, claims, takes the head start and starts the workflow.
func (o *Orchestrator) begin(ctx context.Context, s *stream, id string, r Request) error {
	in, err := o.input(ctx, id, r)
	if err != nil {
		return err
	}
	if in.Key != "" {
		mine, err := o.claim(ctx, s, in)
		if err != nil || !mine {
			o.fleet.Step(in.Plan.Attempt, handoff.StepReserve, errNotBegun)
			return err
		}
	}
	o.adopt(s, in)
	if err := o.bodies.keep(in, activities.Body{Prompt: r.Prompt, Stop: r.Sampling.Stop}); err != nil {
		return err
	}
	if check, ok := o.cfg.Bodies.(Check); ok {
		o.background(func(ctx context.Context) { o.checkIn(ctx, check, in, r) })
	}
	o.background(func(ctx context.Context) { o.headStart(ctx, s, in) })
	o.background(func(ctx context.Context) { o.start(ctx, s, in) })
	o.background(func(ctx context.Context) { o.deadline(ctx, s, in) })
	return nil
}

// checkIn writes the claim check off the critical path. Without it a handoff
// whose gateway dies ends with a typed error instead of going on elsewhere.
func (o *Orchestrator) checkIn(ctx context.Context, check Check, in steps.Input, r Request) {
	ctx, cancel := context.WithTimeout(ctx, in.Lease)
	defer cancel()
	if err := check.Put(ctx, in, activities.Body{Prompt: r.Prompt, Stop: r.Sampling.Stop}); err != nil {
		o.metrics.refused.WithLabelValues("claim-check", handoff.CodeOf(err).String()).Inc()
		o.log.Warn("no claim check: this handoff cannot go on elsewhere", "handoff", in.ID, "error", err.Error())
	}
}

// adopt makes the stream the reader of this input's attempts.
func (o *Orchestrator) adopt(s *stream, in steps.Input) {
	s.mu.Lock()
	s.in, s.reader = in, in.Plan.Reader
	s.abandoned = func() { o.background(func(ctx context.Context) { o.cancel(ctx, s, "the client left") }) }
	s.mu.Unlock()
	o.hub.named(in.Plan.Attempt.Handoff, s)
}

// input decides everything that stands in the workflow's input (rule 2).
func (o *Orchestrator) input(ctx context.Context, id string, r Request) (steps.Input, error) {
	nonce, err := activities.NewNonce()
	if err != nil {
		return steps.Input{}, err
	}
	in := steps.Input{Tenant: r.Tenant, ID: id, Key: keyHash(r), Model: r.Model, ReaderAddress: o.cfg.Process,
		PromptTokens: o.cfg.CountTokens(r.Prompt), Record: o.cfg.Record, Deadline: r.Deadline, Decode: o.cfg.Decode,
		Lease: o.cfg.Lease, Window: o.cfg.Window, MaxEpochs: o.cfg.MaxEpochs,
		Sampling: steps.Sampling{MaxTokens: r.Sampling.MaxTokens, Temperature: r.Sampling.Temperature, TopP: r.Sampling.TopP, Seed: r.Sampling.Seed}}
	in.Plan = handoff.Plan{Attempt: handoff.Attempt{Handoff: runID(id, nonce), Epoch: 1, Nonce: nonce}, BodyDigest: r.Body,
		Reader: handoff.Reader{Process: o.cfg.Process, Incarnation: o.incarnation, Number: 1}}
	if err := o.fleet.place(ctx, &in, pins{r.Prefill, r.Decode}, nil); err != nil {
		return steps.Input{}, err
	}
	if err := in.Plan.Validate(); err != nil {
		return in, err
	}
	return in, o.fleet.Begin(in.Plan, in.PromptTokens)
}

// claim takes the key, or makes the stream a relay of whoever holds it.
func (o *Orchestrator) claim(ctx context.Context, s *stream, in steps.Input) (bool, error) {
	got, err := o.cfg.Ledger.Claim(ctx, ledger.ClaimRequest{Tenant: in.Tenant, Key: in.Key, Body: in.Plan.BodyDigest,
		Handoff: in.Plan.Attempt.Handoff, Owner: o.cfg.Process, Window: in.Window})
	if err != nil || got.Mine {
		return got.Mine, err
	}
	return false, o.relay(ctx, s, in, got.Owner, string(got.Outcome))
}

// headStart issues reserve and prefill of epoch 1 beside the start; the
// workflow's activities join them. Commit is never issued ahead.
func (o *Orchestrator) headStart(ctx context.Context, s *stream, in steps.Input) {
	si := steps.StepInput{Request: in, Reader: steps.ReaderAt{Reader: in.Plan.Reader, Address: in.ReaderAddress}}
	go func() {
		// Its error reaches the workflow, whose activity joins this very run.
		_, _ = o.steps.Prefill(ctx, si)
	}()
	out, err := o.steps.Reserve(ctx, si)
	if err != nil || out.Token == nil {
		return // the same holds here
	}
	o.steps.Attempts.Keep(in.Plan.Attempt)
	o.read(ctx, s, in.Plan, in.Route, *out.Token)
}

// deadline ends a handoff that has no token in time (L1).
func (o *Orchestrator) deadline(ctx context.Context, s *stream, in steps.Input) {
	t := time.NewTimer(in.Deadline)
	defer t.Stop()
	for {
		s.mu.Lock()
		done, tokens, more := s.done, s.tokens, s.more
		s.mu.Unlock()
		if done || tokens > 0 {
			return
		}
		select {
		case <-more:
		case <-ctx.Done():
			return
		case <-t.C:
			s.fail(handoff.Errorf(handoff.CodeDeadline, "no token within %s", in.Deadline))
			o.cancel(ctx, s, "deadline")
			return
		}
	}
}
