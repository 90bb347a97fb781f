package refengine

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
	transferd "github.com/surehand/surehand/transferd/daemon"
)

// host is a real transferd and its control side.
type host struct {
	t       testing.TB
	config  transferd.Config
	daemon  *transferd.Daemon
	audit   *lines
	control *client.Control
}

func newHost(t testing.TB, node handoff.NodeID) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "surehand") // socket paths are short
	if err != nil {
		t.Fatal(err)
	}
	log := &lines{}
	h := &host{t: t, audit: log, config: transferd.Config{Node: node, Data: filepath.Join(dir, "data"), EngineSocket: filepath.Join(dir, "e.sock"),
		Control: "unix://" + filepath.Join(dir, "c.sock"), Peer: "127.0.0.1:0", Audit: slog.New(slog.NewTextHandler(log, nil))}}
	h.start()
	if h.control, err = client.Dial(h.config.Control); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, err := range []error{h.control.Close(), h.daemon.Close(), os.RemoveAll(dir)} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	return h
}

func (h *host) start() {
	h.t.Helper()
	d, err := transferd.Start(h.config)
	if err != nil {
		h.t.Fatal(err)
	}
	h.daemon = d
}

// restart ends one life and begins the next.
func (h *host) restart() {
	h.t.Helper()
	if err := h.daemon.Close(); err != nil {
		h.t.Fatal(err)
	}
	h.start()
}

// lines is a log that is read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

type realMover struct {
	ctx  context.Context
	p, d *host
}

func (m realMover) pull(plan handoff.Plan, token handoff.Token, o engine.Opened) error {
	_, err := m.d.control.Pull(m.ctx, client.PullSpec{Plan: plan, Token: token, SourceAddress: o.SourceAddress, Capability: o.Capability}, nil)
	return err
}

func (m realMover) commit(plan handoff.Plan, token handoff.Token) error {
	_, err := m.d.control.Commit(m.ctx, plan, token, plan.Attempt.Operation("commit"), time.Minute)
	return err
}

func (m realMover) releaseTarget(plan handoff.Plan) error {
	_, err := m.d.control.Release(m.ctx, plan, plan.Attempt.Operation("release"), client.Sides{Target: true})
	return err
}

func (m realMover) releaseSource(plan handoff.Plan) error {
	_, err := m.p.control.Release(m.ctx, plan, plan.Attempt.Operation("release"), client.Sides{Source: true})
	return err
}

func newRealRig(t testing.TB, c Config) *rig {
	t.Helper()
	r := &rig{t: t}
	r.hp, r.hd = newHost(t, "node-p"), newHost(t, "node-d")
	r.move = realMover{t.Context(), r.hp, r.hd}
	start := func(c Config, h *host) *Engine {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		c.TransferdSocket, c.Control = h.config.EngineSocket, h.config.Control
		e, err := New(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	c.ID, c.Role = "engine-p", engine.RolePrefill
	r.p = start(c, r.hp)
	c.ID, c.Role = "engine-d", engine.RoleDecode
	r.d = start(c, r.hd)
	r.serve()
	return r
}
