package orchestrator

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// Attach follows a handoff that was submitted before, from where its client
// stopped: the stream held here, a live one of another gateway, one that this
// process takes over from a gateway that died, or its journal.
func (o *Orchestrator) Attach(ctx context.Context, tenant, id string, from From) (Attached, error) {
	if s := o.hub.find(tenant, id); s != nil && !s.isForgone() {
		o.metrics.attached.WithLabelValues("here").Inc()
		return s.cameBack(s.follow(true), from), nil
	}
	in := steps.Input{Tenant: tenant, ID: id}
	body, run, err := o.knownBody(ctx, in)
	if err != nil {
		return Attached{}, err
	}
	f, s, made, err := o.hub.join(tenant, id, body)
	if err != nil {
		return Attached{}, err
	}
	if made {
		r := Request{Tenant: tenant, Body: body, Deadline: o.cfg.Deadline, attach: true}
		s.mu.Lock()
		s.in.Model, s.kind = run.model, run.kind
		s.mu.Unlock()
		o.join(s, id, r, holder{owner: run.owner}, joinTries)
	}
	return s.cameBack(f, from), nil
}

// knownBody is the digest of a handoff's request, and what else is known of it:
// by its history, else by its journal, which may outlive that.
func (o *Orchestrator) knownBody(ctx context.Context, in steps.Input) (body handoff.Digest, run runFacts, err error) {
	run, err = o.describeRun(ctx, in, o.cfg.StartTimeout)
	if err == nil {
		raw, bad := hex.DecodeString(run.body)
		if bad != nil || len(raw) != len(body) {
			return body, run, handoff.Errorf(handoff.CodeInternal, "the body's digest in the history of %s is malformed", in.ID)
		}
		return handoff.Digest(raw), run, nil
	}
	if !gone(err) {
		return body, run, err
	}
	nobody := handoff.Errorf(handoff.CodeGone, "no handoff %s of tenant %s", in.ID, in.Tenant)
	if o.cfg.Journal == nil {
		return body, run, nobody
	}
	about, _, err := o.cfg.Journal.Read(ctx, journalName(in), 0)
	if handoff.CodeOf(err) == handoff.CodeGone {
		return body, run, nobody
	}
	run.model, run.kind = about.Model, about.Kind
	return about.Body, run, err
}

// cameBack has f begin where its client stopped.
func (s *stream) cameBack(f Follower, from From) Attached {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.(*follower).from = from
	return Attached{Follower: f, Model: s.in.Model, Kind: s.kind, Created: s.began.Unix()}
}

// abandon is what the last follower's leaving means: the handoff is cancelled, a
// journalled one only when nobody came back for a while.
func (o *Orchestrator) abandon(s *stream, in steps.Input) {
	o.background(func(ctx context.Context) {
		var unless func(*stream) bool
		if in.Journal {
			wait := time.NewTimer(o.cfg.Comeback)
			defer wait.Stop()
			select {
			case <-wait.C:
			case <-ctx.Done():
				return
			}
			unless = func(s *stream) bool { return s.done || s.followers > 0 }
		}
		o.cancel(ctx, s, handoff.Errorf(handoff.CodeCancelled, whyLeft), unless)
	})
}
