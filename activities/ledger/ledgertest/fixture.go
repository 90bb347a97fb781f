package ledgertest

import (
	"testing"
	"time"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
)

// Long outlasts every test; short is worth waiting out, on a real server too, and long
// enough for the few calls that come within it on a busy machine.
const (
	long  = time.Minute
	short = 750 * time.Millisecond
)

const engine = handoff.EngineID("d1")

var body, otherBody = handoff.Digest{1}, handoff.Digest{2}

// Seen is a registration of the suite's engine.
func Seen(id handoff.EngineID, incarnation handoff.Incarnation) ledger.Engine {
	return ledger.Engine{
		ID: id, Role: ledger.RoleDecode, Model: "m", Revision: "r1", Layout: []byte{7},
		Node: "n1", NodeIncarnation: incarnation, ProcessIncarnation: 5,
		Address: "127.0.0.1:1", Control: "127.0.0.1:2", Peer: "127.0.0.1:3",
		Blocks: 100, BlockTokens: 16, MaxTokens: 4096, PrefillTokensPerSecond: 1234.5,
		Load: &ledger.Load{BlocksFree: 90, Running: 1, Waiting: 2, QueuedTokens: 300},
	}
}

func attempt(n int) handoff.Attempt {
	return handoff.Attempt{Handoff: "h1", Epoch: 1, Nonce: handoff.Nonce(n)}
}

func claimOf(h handoff.HandoffID, owner string) ledger.ClaimRequest {
	return ledger.ClaimRequest{Tenant: "t", Key: "k", Body: body, Handoff: h, Owner: owner, Window: long}
}

func settleOf(h handoff.HandoffID, o ledger.Outcome) ledger.SettleRequest {
	return ledger.SettleRequest{Tenant: "t", Key: "k", Body: body, Handoff: h, Outcome: o, Window: long}
}

func reserveOf(a handoff.Attempt, blocks uint32) ledger.ReserveRequest {
	return ledger.ReserveRequest{Engine: engine, Incarnation: 3, Attempt: a, Blocks: blocks, Lease: long}
}

// built registers the suite's engine and rebuilds it, holding nothing.
func (w World) built(t *testing.T, total uint32) {
	t.Helper()
	must(t, w.Ledger.Register(t.Context(), Seen(engine, 3), long))
	must(t, w.rebuild(t, total, nil))
}

func (w World) rebuild(t *testing.T, total uint32, held map[handoff.Attempt]uint32) error {
	return w.Ledger.Rebuild(t.Context(), ledger.RebuildRequest{
		Engine: engine, Incarnation: 3, Total: total, Held: held, Lease: long,
	})
}

// used is the ledger's own account of the suite's engine.
func (w World) used(t *testing.T) uint32 {
	t.Helper()
	all, err := w.Ledger.Engines(t.Context())
	must(t, err)
	for _, e := range all {
		if e.ID == engine {
			return e.Used
		}
	}
	t.Fatalf("%s is not registered", engine)
	return 0
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, want handoff.Code) {
	t.Helper()
	if got := handoff.CodeOf(err); got != want {
		t.Fatalf("code %s (%v), want %s", got, err, want)
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s is %v, want %v", what, got, want)
	}
}
