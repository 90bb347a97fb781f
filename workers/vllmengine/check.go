package vllmengine

import (
	"crypto/sha256"
	"time"

	"github.com/surehand/surehand/activities/engine"
	enginev1 "github.com/surehand/surehand/contracts/gen/surehand/engine/v1"
	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
)

// compatible refuses another revision or layout, before anything else (S7).
func (e *Engine) compatible(revision string, layout []byte) error {
	hello, _, _, _ := e.connector.state()
	if revision != "" && revision != hello.GetRevision() {
		return handoff.Errorf(handoff.CodeMismatch, "revision %.16q, here %.16q", revision, hello.GetRevision())
	}
	if len(layout) > 0 && string(layout) != string(hello.GetLayout()) {
		return handoff.Errorf(handoff.CodeMismatch, "another layout is here")
	}
	return nil
}

// seated refuses a seat that is not this engine beside its transferd, and a role
// that it does not have.
func (e *Engine) seated(s handoff.Seat, role engine.Role) error {
	_, beside, _, _ := e.connector.state()
	if s.Engine != e.c.ID || string(s.Node) != beside.GetNode() {
		return handoff.Errorf(handoff.CodeStaleIncarnation, "the plan names %s at %s, here is %s at %s", s.Engine, s.Node, e.c.ID, beside.GetNode())
	}
	if !e.c.Role.Has(role) {
		return handoff.Errorf(handoff.CodeEngine, "engine %s does no %s", e.c.ID, role)
	}
	return nil
}

// stale refuses a new attempt of another incarnation (rule 17), and any while
// connector or transferd are away.
func (e *Engine) stale(s handoff.Seat) error {
	_, beside, _, here := e.connector.state()
	switch {
	case !here:
		return handoff.Errorf(handoff.CodeEngine, "vLLM, or its connector, is away")
	case !beside.GetAttached():
		return handoff.Errorf(handoff.CodeUnavailable, "detached from transferd")
	case uint64(s.Incarnation) != beside.GetIncarnation():
		return handoff.Errorf(handoff.CodeStaleIncarnation, "the plan names incarnation %d of %s, now is %d", s.Incarnation, s.Node, beside.GetIncarnation())
	}
	return nil
}

// request is a body for vLLM with its plan beside it, checked.
func (e *Engine) request(plan *transferv1.Plan, role enginev1.Role, prompt []byte, m *enginev1.Sampling, salt string, leaseMs int64) (completion, error) {
	tokens, err := tokensOf(prompt)
	if err != nil {
		return completion{}, err
	}
	if len(salt) > handoff.MaxNameBytes {
		return completion{}, handoff.Errorf(handoff.CodeTooLarge, "tenant salt has %d bytes, limit %d", len(salt), handoff.MaxNameBytes)
	}
	if !(m.GetTemperature() >= 0 && m.GetTemperature() <= maxTemperature) || !(m.GetTopP() >= 0 && m.GetTopP() <= 1) { // NaN is refused, too
		return completion{}, handoff.Errorf(handoff.CodeInvalid, "temperature %g and top_p %g, want 0..%d and 0..1", m.GetTemperature(), m.GetTopP(), maxTemperature)
	}
	if err := checkStops(m.GetStop()); err != nil {
		return completion{}, err
	}
	lease := e.c.Lease
	if leaseMs != 0 {
		lease = time.Duration(leaseMs) * time.Millisecond
	}
	if leaseMs < 0 || lease < handoff.LeaseMin || lease > handoff.LeaseMax {
		return completion{}, handoff.Errorf(handoff.CodeInvalid, "lease of %d ms, want %d..%d", leaseMs, handoff.LeaseMin.Milliseconds(), handoff.LeaseMax.Milliseconds())
	}
	hello, _, _, _ := e.connector.state()
	c := completion{Model: hello.GetModel(), Prompt: tokens, MaxTokens: m.GetMaxTokens(), Temperature: m.GetTemperature(), TopP: m.GetTopP(),
		Stop: m.GetStop(), ReturnTokens: true, CacheSalt: salt}
	if c.Temperature > 0 {
		seed := m.GetSeed() & maxSeed
		c.Seed = &seed
	}
	if c.CacheSalt == "" {
		c.CacheSalt = plan.GetAttempt().GetHandoff() // shared with nobody
	}
	return c.withPlan(&enginev1.RequestPlan{Plan: plan, Role: role, LeaseMs: lease.Milliseconds(), Tenant: tenant(salt)})
}

// tenant names who shares prefixes without giving the salt away; nobody without one.
func tenant(salt string) []byte {
	if salt == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(salt))
	return sum[:]
}

func checkStops(stops []string) error {
	if len(stops) > maxStops {
		return handoff.Errorf(handoff.CodeTooLarge, "%d stop strings, limit %d", len(stops), maxStops)
	}
	for i, s := range stops {
		if len(s) > maxStopBytes {
			return handoff.Errorf(handoff.CodeTooLarge, "stop string %d has %d bytes, limit %d", i, len(s), maxStopBytes)
		}
	}
	return nil
}
