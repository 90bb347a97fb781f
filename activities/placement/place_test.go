package placement

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An engine of 100 blocks of 10 tokens, 1000 prompt tokens a second, idle.
func engine(id handoff.EngineID, role ledger.Role, change ...func(*ledger.Registered)) ledger.Registered {
	e := ledger.Registered{Built: true, Engine: ledger.Engine{
		ID: id, Role: role, Model: "m", Revision: "r1", Layout: []byte{1}, Node: "n", NodeIncarnation: 1,
		Blocks: 100, BlockTokens: 10, MaxTokens: 2000, PrefillTokensPerSecond: 1000,
		Load: &ledger.Load{BlocksFree: 100},
	}}
	for _, c := range change {
		c(&e)
	}
	return e
}

func p(id handoff.EngineID, c ...func(*ledger.Registered)) ledger.Registered {
	return engine(id, ledger.RolePrefill, c...)
}

func d(id handoff.EngineID, c ...func(*ledger.Registered)) ledger.Registered {
	return engine(id, ledger.RoleDecode, c...)
}

func queued(n uint64) func(*ledger.Registered) {
	return func(e *ledger.Registered) { e.Load.QueuedTokens = n }
}
func used(n uint32) func(*ledger.Registered) { return func(e *ledger.Registered) { e.Used = n } }
func free(n uint32) func(*ledger.Registered) {
	return func(e *ledger.Registered) { e.Load.BlocksFree = n }
}
func silent(e *ledger.Registered)   { e.Load = nil }
func stale(e *ledger.Registered)    { e.Age = LoadStale + 1 }
func cordoned(e *ledger.Registered) { e.Cordoned = true }
func unbuilt(e *ledger.Registered)  { e.Built = false }
func rate(r float64) func(*ledger.Registered) {
	return func(e *ledger.Registered) { e.PrefillTokensPerSecond = r }
}
func shaped(b ...byte) func(*ledger.Registered) { return func(e *ledger.Registered) { e.Layout = b } }
func speaks(v uint32) func(*ledger.Registered) {
	return func(e *ledger.Registered) { e.PeerProtocol = v }
}
func revision(r string) func(*ledger.Registered) {
	return func(e *ledger.Registered) { e.Revision = r }
}
func model(m string) func(*ledger.Registered) { return func(e *ledger.Registered) { e.Model = m } }

func fleet(es ...ledger.Registered) Fleet { return Fleet{Engines: es} }

func request(change ...func(*Request)) Request {
	r := Request{Model: "m", PromptTokens: 100, GrowthTokens: 100, ContextTokens: 200}
	for _, c := range change {
		c(&r)
	}
	return r
}

// first always draws 0, so with two candidates both are compared.
func first(int) int { return 0 }

type blocked struct {
	engines map[handoff.EngineID]bool
	links   map[Link]bool
}

func (b blocked) EngineBlocked(e handoff.EngineID) bool { return b.engines[e] }
func (b blocked) LinkBlocked(l Link) bool               { return b.links[l] }

func TestPlacementChoosesTheLeastLoaded(t *testing.T) {
	slow := map[Link]Measured{{"p1", "d1"}: {0, 1e6}, {"p2", "d1"}: {0, 1e9}}
	for name, c := range map[string]struct {
		fleet Fleet
		r     Request
		p, d  handoff.EngineID
	}{
		"shorter queue":      {fleet(p("p1", queued(500)), p("p2", queued(100)), d("d1")), request(), "p2", "d1"},
		"faster P":           {fleet(p("p1", rate(500)), p("p2"), d("d1")), request(), "p2", "d1"},
		"silent is not idle": {fleet(p("p1", silent), p("p2", queued(5000)), d("d1")), request(), "p2", "d1"},
		"stale is not idle":  {fleet(p("p1", stale), p("p2", queued(5000)), d("d1")), request(), "p2", "d1"},
		"no rate, no trust":  {fleet(p("p1", rate(0)), p("p2", queued(5000)), d("d1")), request(), "p2", "d1"},
		"in flight counts": {Fleet{Engines: []ledger.Registered{p("p1"), p("p2", queued(100)), d("d1")},
			InFlight: map[handoff.EngineID]uint64{"p1": 200}}, request(), "p2", "d1"},
		"faster link": {Fleet{Engines: []ledger.Registered{p("p1"), p("p2"), d("d1")}, Links: slow},
			request(func(r *Request) { r.StateBytes = 1e6 }), "p2", "d1"},
		"unmeasured link is not fast": {Fleet{Engines: []ledger.Registered{p("p1"), p("p2"), d("d1")},
			Links: map[Link]Measured{{"p2", "d1"}: {0, 1e6}}},
			request(func(r *Request) { r.StateBytes = 1e6 }), "p2", "d1"},
		"fewer promises":         {fleet(p("p1"), d("d1", used(50)), d("d2", used(20))), request(), "p1", "d2"},
		"less live":              {fleet(p("p1"), d("d1", free(40)), d("d2", free(60))), request(), "p1", "d2"},
		"promised or live":       {fleet(p("p1"), d("d1", used(10), free(40)), d("d2", used(50))), request(), "p1", "d2"},
		"silent D goes last":     {fleet(p("p1"), d("d1", silent), d("d2", used(70))), request(), "p1", "d2"},
		"silent D is still a D":  {fleet(p("p1"), d("d1", silent)), request(), "p1", "d1"},
		"both roles, two places": {fleet(engine("b1", ledger.RoleBoth), engine("b2", ledger.RoleBoth, used(9))), request(), "b2", "b1"},
		"next D when the best has no P": {fleet(p("p1", shaped(2)), d("d1"), d("d2", shaped(2), used(50))), request(),
			"p1", "d2"},
		"pinned past better ones": {fleet(p("p1", queued(900)), p("p2"), d("d1", used(70)), d("d2")),
			request(func(r *Request) { r.PinP, r.PinD = "p1", "d1" }), "p1", "d1"},
		"away from earlier epochs": {fleet(p("p1"), p("p2", queued(900)), d("d1"), d("d2", used(50))),
			request(func(r *Request) { r.Exclude = []handoff.EngineID{"p1", "d1"} }), "p2", "d2"},
		"back to earlier epochs": {fleet(p("p1"), d("d1")),
			request(func(r *Request) { r.Exclude = []handoff.EngineID{"p1", "d1"} }), "p1", "d1"},
		"back to the only D, not to the P": {fleet(p("p1"), p("p2", queued(900)), d("d1")),
			request(func(r *Request) { r.Exclude = []handoff.EngineID{"p1", "d1"} }), "p2", "d1"},
		"back to the only P, not to the D": {fleet(p("p1"), d("d1"), d("d2", used(50))),
			request(func(r *Request) { r.Exclude = []handoff.EngineID{"p1", "d1"} }), "p1", "d2"},
		"past a blocked link": {Fleet{Engines: []ledger.Registered{p("p1"), p("p2", queued(900)), d("d1")},
			Blocked: blocked{links: map[Link]bool{{"p1", "d1"}: true}}}, request(), "p2", "d1"},
		"in time": {fleet(p("p1", queued(900)), p("p2", queued(100)), d("d1")),
			request(func(r *Request) { r.Deadline = 500 * time.Millisecond }), "p2", "d1"},
		"protocol": {fleet(p("p1", speaks(2)), p("p2", speaks(3)), d("d1", speaks(3))), request(), "p2", "d1"},
		"not told": {fleet(p("p1"), d("d1", speaks(3))), request(), "p1", "d1"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Place(c.r, c.fleet, first)
			if err != nil {
				t.Fatal(err)
			}
			if got.P.ID != c.p || got.D.ID != c.d || got.PScore.Engine != c.p || got.DScore.Engine != c.d {
				t.Fatalf("chose %s and %s, want %s and %s: %+v", got.P.ID, got.D.ID, c.p, c.d, got)
			}
			if got.Blocks != 20 {
				t.Fatalf("%d blocks", got.Blocks)
			}
			if want := strings.HasPrefix(name, "back to "); got.Revisited != want {
				t.Fatalf("revisited: %t", got.Revisited)
			}
		})
	}
}

func TestPlacementRefusesWithCodeReasonAndRetryAfter(t *testing.T) {
	measured := map[Link]Measured{{"p1", "d1"}: {0, 1e9}}
	for name, c := range map[string]struct {
		fleet  Fleet
		r      Request
		code   handoff.Code
		reason Reason
		after  time.Duration
	}{
		"nobody":            {fleet(), request(), handoff.CodeUnavailable, ReasonNoPair, RetryAfterMax},
		"no D":              {fleet(p("p1")), request(), handoff.CodeUnavailable, ReasonRole, RetryAfterMax},
		"no P":              {fleet(d("d1"), d("d2")), request(), handoff.CodeUnavailable, ReasonRole, RetryAfterMax},
		"other model":       {fleet(p("p1"), d("d1", model("x"))), request(), handoff.CodeUnavailable, ReasonModel, RetryAfterMax},
		"other revision":    {fleet(p("p1"), d("d1", revision("r2"))), request(), handoff.CodeUnavailable, ReasonRevision, RetryAfterMax},
		"asked revision":    {fleet(p("p1"), d("d1")), request(func(r *Request) { r.Revision = "r9" }), handoff.CodeUnavailable, ReasonRevision, RetryAfterMax},
		"other layout":      {fleet(p("p1"), d("d1", shaped(2))), request(), handoff.CodeUnavailable, ReasonLayout, RetryAfterMax},
		"other protocol":    {fleet(p("p1", speaks(2)), d("d1", speaks(3))), request(), handoff.CodeUnavailable, ReasonProtocol, RetryAfterMax},
		"unknown layouts":   {fleet(p("p1", shaped()), d("d1", shaped())), request(), handoff.CodeUnavailable, ReasonLayout, RetryAfterMax},
		"cordoned":          {fleet(p("p1", cordoned), d("d1")), request(), handoff.CodeUnavailable, ReasonCordoned, RetryAfterMax},
		"not rebuilt":       {fleet(p("p1"), d("d1", unbuilt)), request(), handoff.CodeUnavailable, ReasonNotRebuilt, RetryAfterMin},
		"promised out":      {fleet(p("p1"), d("d1", used(81))), request(), handoff.CodeCapacity, ReasonBlocks, RetryAfterMin},
		"lived out":         {fleet(p("p1"), d("d1", free(19))), request(), handoff.CodeCapacity, ReasonBlocks, RetryAfterMin},
		"over-promised":     {fleet(p("p1"), d("d1", used(500))), request(), handoff.CodeCapacity, ReasonBlocks, RetryAfterMin},
		"never fits":        {fleet(p("p1"), d("d1")), request(func(r *Request) { r.GrowthTokens = 901 }), handoff.CodeTooLarge, ReasonContext, 0},
		"no sum wraps":      {fleet(p("p1"), d("d1")), request(func(r *Request) { r.GrowthTokens = 1<<32 - 1 }), handoff.CodeTooLarge, ReasonContext, 0},
		"past the context":  {fleet(p("p1"), d("d1")), request(func(r *Request) { r.ContextTokens = 2001 }), handoff.CodeTooLarge, ReasonContext, 0},
		"one full, one off": {fleet(p("p1"), d("d1", used(90)), d("d2", cordoned)), request(), handoff.CodeCapacity, ReasonBlocks, RetryAfterMin},
		"one small, one off": {fleet(p("p1"), d("d1", func(e *ledger.Registered) { e.Blocks = 10 }), d("d2", cordoned)), request(),
			handoff.CodeUnavailable, ReasonCordoned, RetryAfterMax},
		"pinned to the full": {fleet(p("p1"), d("d1", used(90)), d("d2")), request(func(r *Request) { r.PinD = "d1" }),
			handoff.CodeCapacity, ReasonBlocks, RetryAfterMin},
		"pinned to nobody": {fleet(p("p1"), d("d1")), request(func(r *Request) { r.PinP = "p7" }),
			handoff.CodeUnavailable, ReasonPinned, RetryAfterMax},
		"breaker": {Fleet{Engines: []ledger.Registered{p("p1"), d("d1")}, Blocked: blocked{engines: map[handoff.EngineID]bool{"d1": true}}},
			request(), handoff.CodeUnavailable, ReasonBreaker, RetryAfterBreaker},
		"link": {Fleet{Engines: []ledger.Registered{p("p1"), d("d1")}, Blocked: blocked{links: map[Link]bool{{"p1", "d1"}: true}}},
			request(), handoff.CodeUnavailable, ReasonLink, RetryAfterBreaker},
		"only itself": {fleet(engine("b1", ledger.RoleBoth)), request(), handoff.CodeUnavailable, ReasonSame, RetryAfterMax},
		"too late": {Fleet{Engines: []ledger.Registered{p("p1", queued(4000)), d("d1")}, Links: measured},
			request(func(r *Request) { r.Deadline, r.StateBytes = time.Second, 1000 }), handoff.CodeCapacity, ReasonDeadline, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Place(c.r, c.fleet, first)
			var got *Refusal
			if !errors.As(err, &got) {
				t.Fatalf("no refusal: %v", err)
			}
			if got.Code != c.code || got.Reason != c.reason || got.RetryAfter != c.after || got.Detail == "" {
				t.Fatalf("refusal %+v, want %s for %s after %s", got, c.code, c.reason, c.after)
			}
			if handoff.CodeOf(err) != c.code {
				t.Fatalf("code %s gets lost", c.code)
			}
		})
	}
}

// What is not known to be late is tried.
func TestUnknownLoadDoesNotMissADeadline(t *testing.T) {
	r := request(func(r *Request) { r.Deadline = time.Millisecond })
	if _, err := Place(r, fleet(p("p1", silent), d("d1")), first); err != nil {
		t.Fatal(err)
	}
}

func TestScoresAreTheSumOfTheirTerms(t *testing.T) {
	f := Fleet{Engines: []ledger.Registered{p("p1", queued(500)), p("p2", queued(200), rate(0)), d("d1", used(30))},
		Links: map[Link]Measured{{"p1", "d1"}: {100 * time.Millisecond, 1e6}}}
	c, err := Place(request(func(r *Request) { r.StateBytes = 5e5 }), f, first)
	if err != nil {
		t.Fatal(err)
	}
	if c.P.ID != "p1" || c.Against == nil || c.Against.Engine != "p2" || c.Candidates != [2]int{1, 2} {
		t.Fatalf("%+v", c)
	}
	want := []Term{{"queue", 0.5, true}, {"prefill", 0.1, true}, {"transfer", 0.6, true}}
	for i, term := range c.PScore.Terms {
		if term != want[i] {
			t.Errorf("term %+v, want %+v", term, want[i])
		}
	}
	for i, term := range c.Against.Terms { // all of it unknown: worse than the worst known
		if term.Known || term.Value != want[i].Value+UnknownSeconds {
			t.Errorf("assumed %+v of %+v", term, want[i])
		}
	}
	if c.DScore.Score != 0.5 { // 30 promised and 20 more of 100
		t.Errorf("D scores %v", c.DScore.Score)
	}
	text, err := json.Marshal(c)
	if err != nil || len(text) > 1024 {
		t.Errorf("%d bytes for the history, %v", len(text), err)
	}
}

// Two draws spread: with one view the idle P does not get everything, the
// busiest P of three gets nothing, and equal D share.
func TestDrawsSpreadOverTheFleet(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	f := fleet(p("p1"), p("p2", queued(100)), p("p3", queued(200)), d("d1"), d("d2"))
	ps, ds := map[handoff.EngineID]int{}, map[handoff.EngineID]int{}
	const draws = 3000
	for range draws {
		c, err := Place(request(), f, random.IntN)
		if err != nil {
			t.Fatal(err)
		}
		ps[c.P.ID]++
		ds[c.D.ID]++
	}
	if ps["p3"] != 0 || ps["p1"] < draws/2 || ps["p2"] < draws/5 {
		t.Errorf("P %v", ps)
	}
	if ds["d1"] < draws/3 || ds["d2"] < draws/3 {
		t.Errorf("D %v", ds)
	}
}

// The choice does not depend on the order of the view.
func TestPlacementIsDeterministicUnderItsRandomSource(t *testing.T) {
	es := []ledger.Registered{p("p1"), p("p2", queued(1)), p("p3", queued(2)), d("d1"), d("d2"), d("d3")}
	for seed := range uint64(50) {
		var want Choice
		for i := range 5 {
			shuffled := append([]ledger.Registered(nil), es...)
			rand.New(rand.NewPCG(uint64(i), seed)).Shuffle(len(es), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			c, err := Place(request(), fleet(shuffled...), rand.New(rand.NewPCG(seed, seed)).IntN)
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				want = c
			} else if c.P.ID != want.P.ID || c.D.ID != want.D.ID {
				t.Fatalf("%s, %s and %s, %s", c.P.ID, c.D.ID, want.P.ID, want.D.ID)
			}
		}
	}
}

func TestBreakersFeedPlacement(t *testing.T) {
	b := NewBreakers(nil)
	f := fleet(p("p1"), p("p2", queued(900)), d("d1"))
	f.Blocked = b
	permit, err := b.Take("p1", "d1")
	if err != nil {
		t.Fatal(err)
	}
	permit.Done(failed(handoff.CodeIntegrity), 0)
	c, err := Place(request(), f, first)
	if err != nil || c.P.ID != "p2" {
		t.Fatalf("%s, %v", c.P.ID, err)
	}
}
