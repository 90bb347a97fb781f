package scenario

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/surehand/surehand/activities/ledger/redisledger"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/check"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

const judged = 20 * time.Second

// exercised is the engine of a test that asks the store alone: it has no process, and
// gateways that saw its registration ask after it for a while.
const exercised = "exercise"

// Many clients, few keys, two bodies, two gateways of which one is killed in the
// middle: what clients were told of each key, and what each daemon told of each
// attempt, are histories that the protocol allows; and every direct checker
// holds on the same run.
func TestHistoriesOfRealProcessesAreLegal(t *testing.T) {
	s := shared(t)
	const clients, each, tokens = 6, 6, 12
	run := fmt.Sprint(time.Now().UnixNano())
	m := s.Mark()
	var submits check.Log
	var mu sync.Mutex
	var asked []check.Asked
	var all sync.WaitGroup
	for n := range clients {
		rng := rand.New(rand.NewPCG(3, uint64(n)))
		all.Go(func() {
			for range each {
				k := rng.IntN(4)
				a := traffic.Ask{Model: s.Options.ModelName(), Prompt: traffic.Words(100 + 40*k), MaxTokens: tokens, Seed: 7, Key: fmt.Sprintf("%s-%d", run, k), Deadline: 20 * time.Second}
				if rng.IntN(5) == 0 {
					a.Prompt += " and more"
				}
				c := s.g1()
				if rng.IntN(2) == 0 {
					c = s.g2()
				}
				done := submits.Call(check.Op{Object: a.Key, Name: "submit", Body: a.Prompt})
				answer := c.Send(within(t, requestWithin), a)
				done(told(answer))
				mu.Lock()
				asked = append(asked, chaos.Saw(a, answer, tokens))
				mu.Unlock()
			}
		})
	}
	if _, err := s.Await(within(t, requestWithin), m, func(e fleet.Event) bool { return e.Became("target", "committed") }); err != nil {
		t.Error(err) // in the middle of it
	}
	if err := s.Process("g2").Kill(); err != nil {
		t.Error(err)
	}
	if err := s.Heal(t.Context()); err != nil {
		t.Error(err)
	}
	all.Wait()
	s.atRest(t)
	if !submits.Judge(check.Streams, judged) {
		t.Errorf("the answers to %d submits have no legal order:\n%s", submits.Len(), &submits)
	}
	facts, err := s.Facts(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	facts.Asked = asked
	for _, broken := range facts.Broken() {
		t.Error(broken)
	}
	owners, grants := logs(s.Since(m))
	if owners.Len() == 0 || grants.Len() == 0 {
		t.Error("the daemons told nothing")
	}
	if !owners.Judge(check.Ownership, judged) {
		t.Error("what the daemons answered of their targets has no legal order")
	}
	if !grants.Judge(check.Grants, judged) {
		t.Error("what the daemons answered of their sources has no legal order")
	}
	t.Logf("%d submits, %d operations on targets, %d on sources, %d facts of clients", submits.Len(), owners.Len(), grants.Len(), len(asked))
}

// told is a client's answer in the words of the model.
func told(a traffic.Answer) string {
	switch {
	case a.Failure != nil && a.Failure.Code == handoff.CodeKeyReused.String():
		return "reused"
	case a.Broken != nil, a.Handoff == "", a.Status != 200 && a.Failure == nil:
		return check.Unknown
	case a.Failure != nil:
		return "refused"
	case a.Joined:
		return "joined " + a.Handoff
	}
	return "new " + a.Handoff
}

// logs are the operations that daemons told, each at the instant it was told:
// one daemon tells in its order, and the next life of one begins anew.
func logs(events []fleet.Event) (owners, grants *check.Log) {
	owners, grants = &check.Log{}, &check.Log{}
	for _, e := range events {
		object := fmt.Sprintf("%s.%d %s", e.Node, e.Life, e.Attempt)
		switch e.Machine {
		case "target":
			says := map[string]string{"opened": "opened", "committed": "committed", "aborted": "aborted", "closed": "closed"}[e.To]
			if !e.Accepted() {
				says = "refused"
			}
			if name := map[string]string{"open": "open", "commit": "commit", "undo": "undo", "release": "release"}[e.Name]; name != "" && says != "" {
				owners.Call(check.Op{Object: object, Name: name})(says)
			}
		case "source":
			says := "ok"
			if !e.Accepted() {
				says = "refused"
			}
			if name := map[string]string{"open": "open", "question": "read", "undo": "close", "release": "close", "finish": "close"}[e.Name]; name != "" {
				if name == "close" && e.To != "closed" {
					continue
				}
				grants.Call(check.Op{Object: object, Name: name})(says)
			}
		}
	}
	return owners, grants
}

// The fleet's real store, asked from several sides while it stands still and
// while its asks are abandoned: an answer that did not come may have been done.
func TestTheRealStoreLinearizesWhileItStandsStill(t *testing.T) {
	s := shared(t)
	l, err := redisledger.Open(redisledger.Options{URL: s.RedisURL, Timeout: 60 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	one := check.Exercise{Ledger: l, Engine: exercised, Key: fmt.Sprint(time.Now().UnixNano())}
	if err := one.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Deregister(context.WithoutCancel(t.Context()), one.Engine, 1); err != nil {
			t.Error(err)
		}
	}()
	heal, err := chaos.Inject(t.Context(), s.Stage, "stutter", fleet.Redis)
	if err != nil {
		t.Fatal(err)
	}
	var promises, keys check.Log
	var all sync.WaitGroup
	for n := range 4 {
		rng := rand.New(rand.NewPCG(5, uint64(n)))
		all.Go(func() {
			for range 12 {
				one.Ask(t.Context(), rng, &promises, &keys)
			}
		})
	}
	all.Wait()
	if err := heal(t.Context()); err != nil {
		t.Error(err)
	}
	if !promises.Judge(check.Promises(check.ExerciseBlocks), judged) || !keys.Judge(check.Submit, judged) {
		t.Errorf("the store's answers have no legal order: %d of promises, %d of keys", promises.Len(), keys.Len())
	}
	t.Logf("%d operations on promises, %d on keys", promises.Len(), keys.Len())
}
