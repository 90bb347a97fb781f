package orchestrator

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/surehand/surehand/activities"
	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
	"github.com/surehand/surehand/contracts/tracing"
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
// soon as the request is placed and its key is looked up; what happens later is
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
	for err != nil && s != nil { // the other body's claim is being looked up: it may be the one that is refused
		if s.decided(ctx, o.cfg.StartTimeout) == roleNone && !s.isOver() {
			return nil, handoff.Errorf(handoff.CodeUnavailable, "another body is being looked up under this idempotency key")
		}
		f, s, made, err = o.hub.join(r.Tenant, id, r.Body)
	}
	if err != nil {
		return nil, err
	}
	s.cameBack(f, r.From)
	if !made {
		return f, nil
	}
	if r.Once && r.Key == "" {
		s.forgotten(func() { o.hub.forget(s) })
	}
	if err := o.begin(ctx, s, id, r, joinTries); err != nil {
		o.refuse(s, err)
		f.Close()
		return nil, err
	}
	return f, nil
}

// refuse ends a stream whose handoff never began.
func (o *Orchestrator) refuse(s *stream, err error) {
	var e *handoff.Error
	if !errors.As(err, &e) {
		e = &handoff.Error{Code: handoff.CodeOf(err), Detail: err.Error()}
	}
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
	case r.Sampling.MaxTokens > handoff.MaxPromptTokens:
		return handoff.Errorf(handoff.CodeTooLarge, "max_tokens is %d, limit %d", r.Sampling.MaxTokens, handoff.MaxPromptTokens)
	case r.Sampling.MaxTokens == 0:
		return handoff.Errorf(handoff.CodeInvalid, "max_tokens is 0, want at least 1")
	case r.Body.IsZero():
		return handoff.Errorf(handoff.CodeInvalid, "body digest is zero")
	case r.Resume != "" && r.Resume != steps.ResumeReplay:
		return handoff.Errorf(handoff.CodeInvalid, "resume is %q, want %q or nothing", r.Resume, steps.ResumeReplay)
	case r.Resume != "" && (o.cfg.Journal == nil || o.cfg.Record != steps.RecordRequest):
		return handoff.Errorf(handoff.CodeInvalid, "resume: this gateway keeps no journal, or records no streams")
	case r.Journal && o.cfg.Journal == nil:
		return handoff.Errorf(handoff.CodeInvalid, "journal: this gateway keeps none")
	case len(r.Key) > 256:
		return handoff.Errorf(handoff.CodeInvalid, "idempotency key has %d bytes, limit 256", len(r.Key))
	}
	if r.Deadline <= 0 || r.Deadline > o.cfg.Deadline {
		r.Deadline = o.cfg.Deadline
	}
	return nil
}

// begin places, claims, takes the head start and starts the workflow; or joins
// the run that holds the key.
func (o *Orchestrator) begin(ctx context.Context, s *stream, id string, r Request, tries int) error {
	admitted, err := o.starts.admit(ctx, r.Deadline)
	if err != nil {
		return err
	}
	begun, err := o.beginAdmitted(ctx, s, id, r, tries, admitted)
	if !begun {
		admitted()
	}
	return err
}

// beginAdmitted owns the place among the starts once it says begun. A key is
// looked up before engines are: a repeat joins its handoff even when the engines
// that it names are away.
func (o *Orchestrator) beginAdmitted(ctx context.Context, s *stream, id string, r Request, tries int, admitted func()) (begun bool, err error) {
	in, err := o.unplaced(id, r)
	if err != nil {
		return false, err
	}
	in.Trace = tracing.Text(ctx)
	if in.Key != "" {
		got, err := o.cfg.Ledger.Claim(ctx, ledger.ClaimRequest{Tenant: in.Tenant, Key: in.Key, Body: in.Plan.BodyDigest,
			Handoff: in.Plan.Attempt.Handoff, Owner: o.cfg.Process, Window: in.Window})
		if err != nil {
			return false, err
		}
		if !got.Mine {
			s.join()
			o.join(s, id, r, holder{handoff: got.Handoff, owner: got.Owner, settled: string(got.Outcome)}, tries)
			return false, nil
		}
	}
	in, predicted, err := o.placed(ctx, in, r)
	if err != nil {
		o.unclaim(ctx, in, in.Plan.Attempt.Handoff)
		return false, err
	}
	body := bodyOf(r)
	if err := o.bodies.keep(in, body); err != nil {
		o.fleet.Step(in.Plan.Attempt, handoff.StepReserve, errNotBegun)
		o.unclaim(ctx, in, in.Plan.Attempt.Handoff)
		return false, err
	}
	o.adopt(s, in, in.Plan.Reader)
	o.keepJournal(s, in, in.Plan.Reader, r.Kind)
	computes := o.headStart(in, predicted)
	if check, ok := o.cfg.Bodies.(Check); ok {
		o.background(func(ctx context.Context) {
			computes()
			o.checkIn(ctx, check, in, body)
		})
	}
	o.background(func(ctx context.Context) {
		computes()
		o.start(ctx, s, in, r, tries, admitted)
	})
	o.background(func(ctx context.Context) { o.deadline(ctx, s, in) })
	return true, nil
}

// unclaim frees a key that h holds. Without it the key stays taken until
// somebody who asks finds that no run stands behind it.
func (o *Orchestrator) unclaim(ctx context.Context, in steps.Input, h handoff.HandoffID) {
	if in.Key == "" || h == "" {
		return
	}
	if err := o.cfg.Ledger.Unclaim(ctx, in.Tenant, in.Key, h); err != nil {
		o.log.Warn("a key stays claimed", "handoff", in.ID, "error", err.Error())
	}
}

// checkIn writes the claim check off the critical path. Without it a handoff
// whose gateway dies ends with a typed error instead of going on elsewhere.
func (o *Orchestrator) checkIn(ctx context.Context, check Check, in steps.Input, body activities.Body) {
	ctx, cancel := context.WithTimeout(ctx, in.Lease)
	defer cancel()
	if err := check.Put(ctx, in, body); err != nil {
		o.metrics.refused.WithLabelValues("claim-check", handoff.CodeOf(err).String()).Inc()
		o.log.Warn("no claim check: this handoff cannot go on elsewhere", "handoff", in.ID, "error", err.Error())
	}
}

// adopt makes the stream the reader of this input's attempts.
func (o *Orchestrator) adopt(s *stream, in steps.Input, as handoff.Reader) {
	s.mu.Lock()
	s.in, s.reader, s.role = in, as, roleReads
	s.reading.Newest(in.Plan.Attempt)
	s.abandoned = func() { o.abandon(s, in) }
	s.wake()
	s.mu.Unlock()
	o.hub.named(in.Plan.Attempt.Handoff, s)
}

// unplaced is the workflow's input but for its engines (rule 2).
func (o *Orchestrator) unplaced(id string, r Request) (steps.Input, error) {
	nonce, err := activities.NewNonce()
	if err != nil {
		return steps.Input{}, err
	}
	in := steps.Input{Tenant: r.Tenant, ID: id, Key: keyHash(r), Model: r.Model, Asks: true, AsksAgain: true, ReaderAddress: o.cfg.Process,
		PromptTokens: o.tokens(r), Record: o.cfg.Record, Deadline: r.Deadline, Decode: o.cfg.Decode,
		Journal: (r.Journal || r.Resume != "") && o.cfg.Journal != nil, Resume: r.Resume,
		Nameless: r.Nameless && r.Key == "" && !r.Journal && r.Resume == "",
		Lease:    o.cfg.Lease, Window: o.cfg.Window, MaxEpochs: o.cfg.MaxEpochs, NoAttributes: o.cfg.Temporal.NoAttributes,
		Sampling: steps.Sampling{MaxTokens: r.Sampling.MaxTokens, Temperature: r.Sampling.Temperature, TopP: r.Sampling.TopP, Seed: r.Sampling.Seed}}
	in.Plan = handoff.Plan{Attempt: handoff.Attempt{Handoff: runID(id, nonce), Epoch: 1, Nonce: nonce}, BodyDigest: r.Body,
		Reader: handoff.Reader{Process: o.cfg.Process, Incarnation: o.incarnation, Number: 1}}
	return in, nil
}

// placed chooses the engines of epoch 1 and counts the attempt as begun.
func (o *Orchestrator) placed(ctx context.Context, in steps.Input, r Request) (steps.Input, time.Duration, error) {
	predicted, err := o.fleet.place(ctx, &in, pins{r.Prefill, r.Decode}, nil)
	if err != nil {
		return in, 0, err
	}
	if err := in.Plan.Validate(); err != nil {
		return in, 0, err
	}
	return in, predicted, o.fleet.Begin(in.Plan, in.PromptTokens)
}

// headStart issues reserve and prefill of epoch 1 beside the start; the
// workflow's activities join them, so their failures reach it too. The reserve
// names the attempt to this reader, which attaches. Commit is never issued ahead.
//
// What is given back waits until P computes. A prefill that is longer than the
// start hides it, so there the prompt's way to P goes first, and what makes the
// request durable has its turn while P computes.
func (o *Orchestrator) headStart(in steps.Input, predicted time.Duration) (computes func()) {
	si := steps.StepInput{Request: in, Reader: steps.ReaderAt{Reader: in.Plan.Reader, Address: in.ReaderAddress}}
	o.background(func(ctx context.Context) { _, _ = o.steps.Prefill(ctx, si) })
	o.background(func(ctx context.Context) { _, _ = o.steps.Reserve(ctx, si) })
	if predicted < hidesStart {
		return func() {}
	}
	opened := o.steps.Attempts.Opened(in.Plan, in.Route)
	return func() {
		late := time.NewTimer(mostHidden)
		defer late.Stop()
		select {
		case <-opened:
		case <-late.C:
		}
	}
}

const (
	hidesStart = 20 * time.Millisecond // a prefill from which it covers the start, even under load
	mostHidden = 5 * time.Millisecond  // that a start waits for a P that says nothing
)

// deadline ends a handoff that has no token in time (L1). The workflow keeps the
// same time: this is for a client whose worker or Temporal is away.
func (o *Orchestrator) deadline(ctx context.Context, s *stream, in steps.Input) {
	t := time.NewTimer(in.Deadline)
	defer t.Stop()
	silent := func() (<-chan struct{}, bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.waiting(), !s.done && s.tokens == 0
	}
	for more, waits := silent(); waits; more, waits = silent() {
		select {
		case <-more:
		case <-ctx.Done():
			return
		case <-t.C:
			o.cancel(ctx, s, handoff.Errorf(handoff.CodeDeadline, "no token within %s", in.Deadline),
				func(s *stream) bool { return s.tokens > 0 })
			return
		}
	}
}
