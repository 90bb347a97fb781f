// Package bare is a proxy without an orchestrator: reserve, prefill, pull,
// commit and attach are called on the engines and daemons directly, as fast as
// the protocol lets one. It is the floor that Surehand is measured against, and
// the hand with which tests hold grants and tokens themselves.
//
// It has no durability, no keys, no retries, no placement and no undo besides
// its own clean end: what it leaves open ends by lease.
package bare

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
	"github.com/surehand/surehand/transferd/client"
)

// Handoff is one handoff in the hands of its caller.
type Handoff struct {
	Plan   handoff.Plan
	Token  handoff.Token
	Grant  engine.Opened
	prompt []byte
	ask    traffic.Ask
	p, d   engine.Engine
	tp, td *client.Control
	lease  time.Duration
	began  time.Time
	at     Times
}

// Plan makes a handoff between the two engines that an ask names.
func Plan(ctx context.Context, f *fleet.Fleet, a traffic.Ask) (*Handoff, error) {
	h := &Handoff{prompt: []byte(a.Prompt), ask: a, lease: f.Options.Lease}
	var err error
	var seats [2]handoff.Seat
	for i, id := range []string{a.Prefill, a.Decode} {
		e, err := f.Engine(id)
		if err != nil {
			return nil, err
		}
		about, err := e.Describe(ctx)
		if err != nil {
			return nil, err
		}
		seats[i] = handoff.Seat{Engine: about.Engine, Node: about.Node, Incarnation: about.Incarnation}
		if i == 0 {
			h.p, h.tp = e, f.Daemon(string(about.Node))
		} else {
			h.d, h.td = e, f.Daemon(string(about.Node))
		}
	}
	h.Plan, err = plan(seats[0], seats[1], h.prompt)
	return h, err
}

func plan(p, d handoff.Seat, prompt []byte) (handoff.Plan, error) {
	var nonce [8]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return handoff.Plan{}, err
	}
	a := handoff.Attempt{Handoff: handoff.HandoffID("b" + strings.ToLower(rand.Text())), Epoch: 1, Nonce: handoff.Nonce(binary.LittleEndian.Uint64(nonce[:]) | 1)}
	return handoff.Plan{Attempt: a, P: p, D: d, Reader: handoff.Reader{Process: "bare", Incarnation: 1, Number: 1},
		BodyDigest: sha256.Sum256(prompt)}, nil
}

func (h *Handoff) sampling() engine.Sampling {
	return engine.Sampling{MaxTokens: uint32(h.ask.MaxTokens), Seed: uint64(h.ask.Seed)}
}

// Reserve takes D's room.
func (h *Handoff) Reserve(ctx context.Context) error {
	got, err := h.d.Reserve(ctx, engine.Reservation{Plan: h.Plan, PromptTokens: uint32(len(h.prompt) + 2), Sampling: h.sampling(), Lease: h.lease})
	h.Token = got.Token
	return err
}

// Prefill computes at P; opened is called once the grant is there.
func (h *Handoff) Prefill(ctx context.Context, opened func()) error {
	_, err := h.p.Prefill(ctx, engine.Prefill{Plan: h.Plan, Prompt: h.prompt, Sampling: h.sampling(), Lease: h.lease}, func(o engine.Opened) {
		h.Grant = o
		opened()
	}, nil)
	return err
}

// Pull has D's daemon read from P's.
func (h *Handoff) Pull(ctx context.Context) (client.PullResult, error) {
	return h.td.Pull(ctx, client.PullSpec{Plan: h.Plan, Token: h.Token, SourceAddress: h.Grant.SourceAddress, Capability: h.Grant.Capability}, nil)
}

// Commit makes the target visible.
func (h *Handoff) Commit(ctx context.Context) error {
	_, err := h.td.Commit(ctx, h.Plan, h.Token, h.Plan.Attempt.Operation("commit"), h.lease)
	return err
}

// Release ends both sides, whatever their state.
func (h *Handoff) Release(ctx context.Context) error {
	op := h.Plan.Attempt.Operation("release")
	_, atD := h.td.Release(ctx, h.Plan, op, client.Sides{Target: true})
	_, atP := h.tp.Release(ctx, h.Plan, op, client.Sides{Source: true})
	return errors.Join(atD, atP)
}

// Attach reads the tokens, waiting for the commit.
func (h *Handoff) Attach(ctx context.Context, each func(engine.DecodeEvent) error) error {
	return h.d.Attach(ctx, h.Plan, h.Token, 0, each)
}
