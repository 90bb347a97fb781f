package refengine

import (
	"crypto/sha256"
	"time"

	"github.com/surehand/surehand/activities/engine"
	enginev1 "github.com/surehand/surehand/contracts/gen/surehand/engine/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/refengine/compute"
	"github.com/surehand/surehand/workers/refengine/paged"
)

// compatible refuses another revision or layout, before anything else (S7).
func (e *Engine) compatible(revision string, layout []byte) error {
	if revision != "" && revision != e.form.revision {
		return handoff.Errorf(handoff.CodeMismatch, "revision %.16q, here %.16q", revision, e.form.revision)
	}
	if len(layout) > 0 && string(layout) != string(e.form.digest[:]) {
		return handoff.Errorf(handoff.CodeMismatch, "layout differs from %s here", e.form.digest)
	}
	return nil
}

// seated refuses a seat that is not this engine beside this life of its
// transferd (rule 17), and a role that it does not have.
func (e *Engine) seated(s handoff.Seat, role engine.Role) error {
	here := handoff.Seat{Engine: e.c.ID, Node: e.daemon.Node(), Incarnation: e.daemon.Incarnation()}
	if s.Engine != here.Engine || s.Node != here.Node {
		return handoff.Errorf(handoff.CodeStaleIncarnation, "the plan names %s at %s, here is %s at %s", s.Engine, s.Node, here.Engine, here.Node)
	}
	if !e.c.Role.Has(role) {
		return handoff.Errorf(handoff.CodeEngine, "engine %s does no %s", e.c.ID, role)
	}
	return nil
}

// stale refuses a plan of another incarnation, unless its attempt is known here:
// what was committed before transferd's restart lives on (rule 9).
func (e *Engine) stale(s handoff.Seat) error {
	if now := e.daemon.Incarnation(); s.Incarnation != now {
		return handoff.Errorf(handoff.CodeStaleIncarnation, "the plan names incarnation %d of %s, now is %d", s.Incarnation, s.Node, now)
	}
	return nil
}

// room reads and bounds a reservation.
func (e *Engine) room(m *enginev1.ReserveRequest) (room, error) {
	r := room{tokens: int(m.GetPromptTokens()), growth: int(m.GetSampling().GetMaxTokens()), stops: m.GetSampling().GetStop(), drawn: int(m.GetSampling().GetDrawn())}
	var err error
	if r.lease, err = e.lease(m.GetLeaseMs()); err != nil {
		return room{}, err
	}
	if _, ok := e.compute.(compute.Resumes); r.drawn > 0 && !ok {
		return room{}, handoff.Errorf(handoff.CodeInvalid, "this engine does not rebuild an answer's state from its tokens")
	}
	return r, e.fits(r.tokens, r.growth, r.stops)
}

// fits bounds a request by the model's context.
func (e *Engine) fits(tokens, growth int, stops []string) error {
	limit := e.compute.Context()
	switch {
	case tokens < 1 || growth < 1:
		return handoff.Errorf(handoff.CodeInvalid, "%d prompt tokens and %d of answer, want at least 1 of each", tokens, growth)
	case tokens > limit || growth > limit || tokens+growth > limit:
		return handoff.Errorf(handoff.CodeTooLarge, "%d prompt tokens and %d of answer, context of %d", tokens, growth, limit)
	case len(stops) > maxStops:
		return handoff.Errorf(handoff.CodeTooLarge, "%d stop strings, limit %d", len(stops), maxStops)
	}
	for i, s := range stops {
		if len(s) > maxStopBytes {
			return handoff.Errorf(handoff.CodeTooLarge, "stop string %d has %d bytes, limit %d", i, len(s), maxStopBytes)
		}
	}
	return nil
}

// prompt reads and bounds a prefill.
func (e *Engine) prompt(m *enginev1.PrefillRequest) (prompt, error) {
	tokens, err := e.compute.Encode(m.GetPrompt())
	if err != nil {
		return prompt{}, err
	}
	if len(m.GetTenantSalt()) > handoff.MaxNameBytes {
		return prompt{}, handoff.Errorf(handoff.CodeTooLarge, "tenant salt has %d bytes, limit %d", len(m.GetTenantSalt()), handoff.MaxNameBytes)
	}
	s, err := sampling(m.GetSampling())
	if err != nil {
		return prompt{}, err
	}
	if s.Drawn > 0 {
		on, ok := e.compute.(compute.Resumes)
		if !ok {
			return prompt{}, handoff.Errorf(handoff.CodeInvalid, "this engine does not rebuild an answer's state from its tokens")
		}
		if tokens, err = on.Continue(tokens, m.GetAnswered(), s.Drawn); err != nil {
			return prompt{}, err
		}
	}
	lease, err := e.lease(m.GetLeaseMs())
	p := prompt{tokens: tokens, sampling: s, salt: paged.Salt(m.GetTenantSalt()), lease: lease}
	if p.salt != "" {
		p.tenant = sha256.Sum256([]byte(p.salt))
	}
	return p, err
}

func sampling(m *enginev1.Sampling) (compute.Sampling, error) {
	s := compute.Sampling{Temperature: m.GetTemperature(), TopP: m.GetTopP(), Seed: m.GetSeed(), Drawn: int(m.GetDrawn())}
	if !(s.Temperature >= 0 && s.Temperature <= maxTemperature) || !(s.TopP >= 0 && s.TopP <= 1) { // NaN is refused, too
		return s, handoff.Errorf(handoff.CodeInvalid, "temperature %g and top_p %g, want 0..%d and 0..1", s.Temperature, s.TopP, maxTemperature)
	}
	return s, nil
}

func (e *Engine) lease(ms int64) (time.Duration, error) {
	if ms == 0 {
		return e.c.Lease, nil
	}
	if ms < handoff.LeaseMin.Milliseconds() || ms > handoff.LeaseMax.Milliseconds() {
		return 0, handoff.Errorf(handoff.CodeInvalid, "lease of %d ms, want %d..%d", ms, handoff.LeaseMin.Milliseconds(), handoff.LeaseMax.Milliseconds())
	}
	return time.Duration(ms) * time.Millisecond, nil
}
