package daemon_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
	"github.com/surehand/surehand/transferd/daemon"
)

func (m *move) openAs(tenant string, blocks ...uint32) error {
	s := client.SourceSpec{Plan: m.plan, Shape: shape, Offsets: m.from, Blocks: blocks}
	copy(s.Tenant[:], tenant)
	g, err := m.p.OpenSource(background(m.t), s)
	m.capability = g.Capability
	return err
}

// A true capability of one tenant's source, presented by its rightful holder for
// another tenant's, gets no byte, and the audit says that it was a crossing; so does
// an engine that opens a source over blocks which are pinned for another tenant. Of
// one tenant both are plain refusals, or none at all: a prefix is shared.
func TestAttackAcrossTenants(t *testing.T) {
	log := &safeBuffer{}
	ph, p, dh, d := pair(t, func(c *daemon.Config) { c.Audit = slog.New(slog.NewTextHandler(log, nil)) })
	crossings := func() int { return strings.Count(log.String(), "act=crossing") }
	red, alsoRed, blue, thief := newMove(t, ph, p, dh, d), newMove(t, ph, p, dh, d), newMove(t, ph, p, dh, d), newMove(t, ph, p, dh, d)
	for i := range red.from { // places of their own
		for k, m := range []*move{red, alsoRed, blue, thief} {
			m.from[i] = uint64(i+k*len(red.from)) * blockBytes
		}
	}
	check(t, red.openAs("red", 1, 2))
	check(t, alsoRed.openAs("red", 2, 3))
	check(t, blue.openAs("blue", 4))

	if code := blue.present("td", blue.dh.Incarnation(), blue.plan.Attempt, red.capability); code != handoff.CodeDenied {
		t.Fatalf("another tenant's: %s", code)
	}
	eventually(t, "the crossing is in the audit", func() bool { return crossings() == 1 })
	wantCode(t, thief.openAs("blue", 4, 3), handoff.CodeDenied)
	eventually(t, "so is the block's", func() bool {
		return crossings() == 2 && strings.Contains(log.String(), "handoff="+string(thief.plan.Attempt.Handoff))
	})

	if code := red.present("td", red.dh.Incarnation(), red.plan.Attempt, alsoRed.capability); code != handoff.CodeDenied {
		t.Fatalf("another attempt's: %s", code)
	}
	eventually(t, "the refusal is in the audit", func() bool { return strings.Count(log.String(), "act=refuse") > 0 })
	if n := crossings(); n != 2 {
		t.Fatalf("%d crossings, one tenant's own among them: %s", n, log.String())
	}

	// Once red's pins have drained its blocks are anybody's.
	check(t, red.p.CloseSource(background(t), red.plan.Attempt, handoff.CodeCancelled))
	check(t, alsoRed.p.CloseSource(background(t), alsoRed.plan.Attempt, handoff.CodeCancelled))
	red.p.await(t, client.SourceDrained, red.plan.Attempt)
	red.p.await(t, client.SourceDrained, alsoRed.plan.Attempt)
	check(t, thief.openAs("blue", 4, 3))
}
