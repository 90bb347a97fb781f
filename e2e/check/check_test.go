package check

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/activities/ledger/memledger"
	"github.com/surehand/surehand/contracts/handoff"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

// told is one operation of a written history; they follow each other unless an
// answer is Unknown, which stays open.
type told struct {
	op     Op
	answer string
}

func judge(m Model, ops ...told) bool {
	var l Log
	for _, o := range ops {
		l.Call(o.op)(o.answer)
	}
	return l.Judge(m, patience)
}

func TestHistoriesThatTheProtocolAllows(t *testing.T) {
	a := func(name string) Op { return Op{Object: "e1", Name: name} }
	k := func(name, who, body string) Op { return Op{Object: "k", Name: name, Who: who, Body: body} }
	p := func(name, who string, n uint32) Op { return Op{Object: "d", Name: name, Who: who, Size: n} }
	for name, ok := range map[string]bool{
		"a commit, its repeat, its end":            judge(Ownership, told{a("open"), "opened"}, told{a("commit"), "committed"}, told{a("commit"), "committed"}, told{a("release"), "aborted"}, told{a("commit"), "aborted"}),
		"a lost commit that an undo finds done":    judge(Ownership, told{a("open"), "opened"}, told{a("commit"), Unknown}, told{a("undo"), "committed"}),
		"a lost commit that was never done":        judge(Ownership, told{a("open"), "opened"}, told{a("commit"), Unknown}, told{a("undo"), "closed"}),
		"an undo before the open":                  judge(Ownership, told{a("undo"), "closed"}, told{a("open"), "closed"}),
		"a lease that ended by itself":             judge(Grants, told{a("open"), "ok"}, told{a("read"), "ok"}, told{a("read"), "refused"}),
		"a claim, another's, its end":              judge(Submit, told{k("claim", "h1", "b"), "mine"}, told{k("claim", "h2", "b"), "held by h1"}, told{k("settle", "h1", "b"), "ok"}, told{k("claim", "h2", "b"), "settled by h1"}),
		"a lost settle":                            judge(Submit, told{k("claim", "h1", "b"), "mine"}, told{k("settle", "h1", "b"), Unknown}, told{k("unclaim", "h1", "b"), "conflict"}),
		"a promise given back":                     judge(Promises(4), told{p("reserve", "a", 3), "ok"}, told{p("reserve", "b", 2), "capacity"}, told{p("release", "a", 0), "ok"}, told{p("reserve", "b", 2), "ok"}),
		"a lost reserve that may have taken space": judge(Promises(4), told{p("reserve", "a", 3), Unknown}, told{p("reserve", "b", 2), "capacity"}),
	} {
		if !ok {
			t.Errorf("refused: %s", name)
		}
	}
}

// The checkers are checked: each must report these.
func TestHistoriesThatTheProtocolForbidsAreReported(t *testing.T) {
	a := func(name string) Op { return Op{Object: "e1", Name: name} }
	k := func(name, who, body string) Op { return Op{Object: "k", Name: name, Who: who, Body: body} }
	p := func(name, who string, n uint32) Op { return Op{Object: "d", Name: name, Who: who, Size: n} }
	for name, ok := range map[string]bool{
		"a commit after the undo was answered closed (rule 4)": judge(Ownership, told{a("open"), "opened"}, told{a("undo"), "closed"}, told{a("commit"), "committed"}),
		"an undo that takes a commit back (rule 4)":            judge(Ownership, told{a("open"), "opened"}, told{a("commit"), "committed"}, told{a("undo"), "closed"}),
		"a commit answered from memory (rule 8)":               judge(Ownership, told{a("open"), "opened"}, told{a("commit"), "committed"}, told{a("release"), "aborted"}, told{a("commit"), "committed"}),
		"an open after its tombstone (rule 7)":                 judge(Ownership, told{a("release"), "closed"}, told{a("open"), "opened"}),
		"a lost commit seen done and then closed":              judge(Ownership, told{a("open"), "opened"}, told{a("commit"), Unknown}, told{a("undo"), "committed"}, told{a("undo"), "closed"}),
		"a read after the close was answered (S5)":             judge(Grants, told{a("open"), "ok"}, told{a("close"), "ok"}, told{a("read"), "ok"}),
		"a read that nothing granted (S15)":                    judge(Grants, told{a("read"), "ok"}),
		"a key that two handoffs hold (S13)":                   judge(Submit, told{k("claim", "h1", "b"), "mine"}, told{k("claim", "h2", "b"), "mine"}),
		"another body under the key (S13)":                     judge(Submit, told{k("claim", "h1", "b"), "mine"}, told{k("claim", "h2", "c"), "held by h1"}),
		"a settled key that is free again (S13)":               judge(Submit, told{k("claim", "h1", "b"), "mine"}, told{k("settle", "h1", "b"), "ok"}, told{k("claim", "h2", "b"), "mine"}),
		"more promised than there is (S8)":                     judge(Promises(4), told{p("reserve", "a", 3), "ok"}, told{p("reserve", "b", 2), "ok"}),
		"a promise after its release (rule 16)":                judge(Promises(4), told{p("release", "a", 0), "ok"}, told{p("reserve", "a", 1), "ok"}),
		"space that a release gave twice (S8)":                 judge(Promises(2), told{p("reserve", "a", 2), "ok"}, told{p("release", "a", 0), "ok"}, told{p("release", "a", 0), "ok"}, told{p("reserve", "b", 2), "ok"}, told{p("reserve", "c", 1), "ok"}),
	} {
		if ok {
			t.Errorf("not reported: %s", name)
		}
	}
}

// TestTheLedgerLinearizes asks a real ledger from several sides at once and
// loses every fourth answer.
func TestTheLedgerLinearizes(t *testing.T) {
	for seed := range uint64(20) {
		l := memledger.New(nil)
		register(t, l)
		var promises, keys Log
		var all sync.WaitGroup
		for worker := range 4 {
			rng := rand.New(rand.NewPCG(seed, uint64(worker)))
			all.Go(func() {
				for range 8 {
					ask(t.Context(), l, rng, &promises, &keys)
				}
			})
		}
		all.Wait()
		if !promises.Judge(Promises(total), patience) || !keys.Judge(Submit, patience) {
			t.Fatalf("seed %d: the ledger does not linearize", seed)
		}
	}
}

const total = 6

func register(t *testing.T, l *memledger.Ledger) {
	t.Helper()
	layout := handoff.Digest{1}
	e := ledger.Engine{ID: "d", Role: ledger.RoleBoth, Model: "m", Revision: "r", Layout: layout[:], Node: "n", NodeIncarnation: 1, ProcessIncarnation: 1,
		Address: "a", Control: "c", Peer: "p", Blocks: total, BlockTokens: 16, MaxTokens: 1 << 10}
	if err := l.Register(t.Context(), e, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := l.Rebuild(t.Context(), ledger.RebuildRequest{Engine: "d", Incarnation: 1, Total: total, Lease: time.Minute}); err != nil {
		t.Fatal(err)
	}
}

func ask(ctx context.Context, l *memledger.Ledger, rng *rand.Rand, promises, keys *Log) {
	n := rng.IntN(4)
	who := fmt.Sprintf("h%d", n)
	at := handoff.Attempt{Handoff: handoff.HandoffID(who), Epoch: 1, Nonce: 1}
	body := handoff.Digest{byte(1 + n%2)}
	answer := func(done func(string), err error, ok string) {
		said := ok
		if err != nil {
			said = map[handoff.Code]string{handoff.CodeCapacity: "capacity", handoff.CodeClosed: "closed", handoff.CodeKeyReused: "reused", handoff.CodeConflict: "conflict"}[handoff.CodeOf(err)]
		}
		if rng.IntN(4) == 0 {
			said = Unknown
		}
		done(said)
	}
	b := fmt.Sprint(body[0])
	switch rng.IntN(5) {
	case 0:
		done := promises.Call(Op{Object: "d", Name: "reserve", Who: who, Size: 2})
		answer(done, l.Reserve(ctx, ledger.ReserveRequest{Engine: "d", Incarnation: 1, Attempt: at, Blocks: 2, Lease: time.Minute}), "ok")
	case 1:
		done := promises.Call(Op{Object: "d", Name: "release", Who: who})
		answer(done, l.Release(ctx, "d", at), "ok")
	case 2:
		done := keys.Call(Op{Object: "k", Name: "claim", Who: who, Body: b})
		got, err := l.Claim(ctx, ledger.ClaimRequest{Tenant: "t", Key: "k", Body: body, Handoff: at.Handoff, Owner: "o", Window: time.Hour})
		ok := "mine"
		switch {
		case got.State == ledger.StateSettled:
			ok = "settled by " + string(got.Handoff)
		case !got.Mine:
			ok = "held by " + string(got.Handoff)
		}
		answer(done, err, ok)
	case 3:
		done := keys.Call(Op{Object: "k", Name: "unclaim", Who: who, Body: b})
		answer(done, l.Unclaim(ctx, "t", "k", at.Handoff), "ok")
	case 4:
		done := keys.Call(Op{Object: "k", Name: "settle", Who: who, Body: b})
		answer(done, l.Settle(ctx, ledger.SettleRequest{Tenant: "t", Key: "k", Body: body, Handoff: at.Handoff, Outcome: ledger.OutcomeCompleted, Window: time.Hour}), "ok")
	}
}
