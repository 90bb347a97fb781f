package refengine

import (
	"context"
	"crypto/tls"
	"errors"
	"testing"
	"time"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/activities/engine/reference"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/refengine/schedule"
)

func TestLeasesThatNobodyRenewsGiveEverythingBack(t *testing.T) {
	c := small()
	c.Lease = 500 * time.Millisecond
	r := newRealRig(t, c)
	a := ask{prompt: promptOf(20), sampling: engine.Sampling{MaxTokens: 5}}
	plan := r.plan()
	if _, err := r.dc.Reserve(t.Context(), a.reservation(plan)); err != nil {
		t.Fatal(err)
	}
	_, err := r.pc.Prefill(t.Context(), a.prefill(plan), nil, nil)
	if err != nil { // not done within it, on a busy machine
		wantCode(t, "prefill", err, handoff.CodeLease)
	}
	r.clean()
	_, err = r.dc.Reserve(t.Context(), a.reservation(plan))
	wantCode(t, "reserve again", err, handoff.CodeLease)
	_, err = r.pc.Prefill(t.Context(), a.prefill(plan), nil, nil)
	wantCode(t, "prefill again", err, handoff.CodeLease)
}

func TestADecodeWhoseLeaseEndsIsAborted(t *testing.T) {
	r := newRealRig(t, slow())
	plan := r.plan()
	token, _, err := r.ready(long, plan)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.hd.control.Commit(t.Context(), plan, token, plan.Attempt.Operation("commit"), 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "attach", r.dc.Attach(t.Context(), plan, token, 0, func(engine.DecodeEvent) error { return nil }), handoff.CodeAborted)
	if err := r.move.releaseSource(plan); err != nil {
		t.Fatal(err)
	}
	r.clean()
}

// Run ends when asked to; what it held is over at its transferd.
func TestAnEngineThatIsStoppedEndsItsAttempts(t *testing.T) {
	h := newHost(t, "node-d")
	c := small()
	c.ID, c.Role, c.TransferdSocket, c.Control = "engine-d", engine.RoleDecode, h.config.EngineSocket, h.config.Control
	c.Profile = schedule.Profile{StepInterval: time.Millisecond}
	ready := make(chan *Engine, 1)
	c.Ready = func(e *Engine) { ready <- e }
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, c) }()
	e := <-ready
	connections := reference.NewConnections(nil, 0)
	defer func() {
		if err := connections.Close(); err != nil {
			t.Error(err)
		}
	}()
	remote, err := connections.Engine(e.Address())
	if err != nil {
		t.Fatal(err)
	}
	d, err := remote.Describe(t.Context())
	if err != nil || d.Engine != "engine-d" || d.Node != "node-d" || d.Incarnation != h.daemon.Incarnation() || d.Peer != h.daemon.PeerAddress() || d.Role != engine.RoleDecode {
		t.Fatalf("%+v, %v", d, err)
	}
	seat := handoff.Seat{Engine: d.Engine, Node: d.Node, Incarnation: d.Incarnation}
	plan := handoff.Plan{Attempt: handoff.Attempt{Handoff: "h", Epoch: 1, Nonce: 1}, P: handoff.Seat{Engine: "p", Node: "p", Incarnation: 1}, D: seat, BodyDigest: handoff.Digest{1}}
	q := engine.Reservation{Plan: plan, PromptTokens: 20, Sampling: engine.Sampling{MaxTokens: 5}, Revision: d.Revision, Layout: d.Layout}
	reserved, err := remote.Reserve(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	attached := make(chan error, 1)
	go func() {
		attached <- remote.Attach(t.Context(), plan, reserved.Token, 0, func(engine.DecodeEvent) error { return nil })
	}()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	wantCode(t, "attach", <-attached, handoff.CodeUnavailable)
	_, err = remote.Reserve(t.Context(), q)
	wantCode(t, "reserve", err, handoff.CodeEngine)
	eventually(t, "transferd closed the target", func() bool {
		live, err := h.control.Describe(t.Context(), false)
		return err == nil && live.GetTargetsLive() == 0 && live.GetTargetsQuarantined() == 0
	})
}

func TestAConfigurationThatCannotWorkIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		code   handoff.Code
		change func(*Config)
	}{
		"id":        {handoff.CodeInvalid, func(c *Config) { c.ID = "Upper" }},
		"role":      {handoff.CodeInvalid, func(c *Config) { c.Role = 0 }},
		"compute":   {handoff.CodeInvalid, func(c *Config) { c.Compute = "magic" }},
		"blocks":    {handoff.CodeInvalid, func(c *Config) { c.Blocks = -1 }},
		"slots":     {handoff.CodeInvalid, func(c *Config) { c.Slots = 1 << 20 }},
		"address":   {handoff.CodeInvalid, func(c *Config) { c.Listen = "nowhere" }},
		"plaintext": {handoff.CodeDenied, func(c *Config) { c.Listen = "0.0.0.0:0" }},
	} {
		config := small()
		config.ID, config.Role = "engine", engine.RoleBoth
		c.change(&config)
		_, err := newEngine(config)
		wantCode(t, name, err, c.code)
	}
	secure := small()
	secure.ID, secure.Role, secure.Listen, secure.TLS = "engine", engine.RoleBoth, "0.0.0.0:0", &tls.Config{MinVersion: tls.VersionTLS13}
	if err := secure.check(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	nobody := small()
	nobody.ID, nobody.Role, nobody.TransferdSocket = "engine", engine.RoleBoth, "/nonexistent/engine.sock"
	if err := Run(ctx, nobody); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Error("a stop before the attach is no failure:", err)
	}
	if _, err := New(ctx, nobody); handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Error(err)
	}
}
