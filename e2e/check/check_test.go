package check

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/activities/ledger/memledger"
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
		"submits that join":                        judge(Streams, told{k("submit", "", "b"), "new h1"}, told{k("submit", "", "b"), "joined h1"}, told{k("submit", "", "c"), "reused"}),
		"a submit that ended typed, committed":     judge(Streams, told{k("submit", "", "b"), "refused"}, told{k("submit", "", "c"), "reused"}, told{k("submit", "", "b"), "refused"}),
		"a submit that ended typed, uncommitted":   judge(Streams, told{k("submit", "", "b"), "refused"}, told{k("submit", "", "c"), "new h2"}),
		"a lost submit that somebody joins":        judge(Streams, told{k("submit", "", "b"), Unknown}, told{k("submit", "", "b"), "joined h1"}, told{k("submit", "", "b"), "joined h1"}),
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
		"two handoffs for one submit (S13)":                    judge(Streams, told{k("submit", "", "b"), "new h1"}, told{k("submit", "", "b"), "new h2"}),
		"a join under another body (S13)":                      judge(Streams, told{k("submit", "", "b"), "new h1"}, told{k("submit", "", "c"), "joined h1"}),
		"a lost submit that was two (S13)":                     judge(Streams, told{k("submit", "", "b"), Unknown}, told{k("submit", "", "b"), "joined h1"}, told{k("submit", "", "b"), "joined h2"}),
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
		one := Exercise{Ledger: l, Engine: "d", Key: "k", Deaf: 4}
		if err := one.Register(t.Context()); err != nil {
			t.Fatal(err)
		}
		var promises, keys Log
		var all sync.WaitGroup
		for worker := range 4 {
			rng := rand.New(rand.NewPCG(seed, uint64(worker)))
			all.Go(func() {
				for range 8 {
					one.Ask(t.Context(), rng, &promises, &keys)
				}
			})
		}
		all.Wait()
		if !promises.Judge(Promises(ExerciseBlocks), patience) || !keys.Judge(Submit, patience) {
			t.Fatalf("seed %d: the ledger does not linearize", seed)
		}
	}
}
