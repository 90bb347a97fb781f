package peers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/peers/fake"
	"github.com/surehand/surehand/e2e/traffic"
)

// Round is one side's share of a load, once.
type Round struct {
	Side, Load            string
	Requests, Failed      int
	Failures              map[string]int
	Rate                  float64 // whole streams a second
	TTFT50, TTFT99        time.Duration
	Gap99                 time.Duration
	Router, Helpers       time.Duration // CPU a request
	Fakes, FakeD, Clients time.Duration // likewise: P and D, D alone, the generator
	RSS                   int64
}

// Loads of a configuration.
func (c Config) loads() (out []Load) {
	if !c.Loads {
		return nil
	}
	for _, clients := range c.Clients {
		out = append(out, Load{Name: zeroLoad(clients), Clients: clients, Prompt: []int{shortPrompt}, Tokens: []int{shortTokens}, Rounds: c.Rounds})
	}
	for _, tokens := range []int{relayFew, relayMany} {
		out = append(out, Load{Name: relayLoad(tokens), Clients: relayClients, Count: relayClients * max(1, relayMany/tokens/4), Prompt: []int{shortPrompt}, Tokens: []int{tokens},
			pace: pace{step: 20 * time.Millisecond}, Rounds: min(3, c.Rounds)})
	}
	for _, clients := range []int{16, profiledClients} {
		out = append(out, Load{Name: realLoad(clients), Clients: clients, Prompt: []int{realPrompt}, Tokens: []int{realTokens}, pace: realPace, Rounds: c.Rounds})
	}
	for _, rate := range c.Rates {
		n := max(40, int(rate*1.5*c.Round.Seconds()))
		out = append(out, Load{Name: poissonLoad(rate), At: traffic.Poisson(rand.New(rand.NewPCG(7, uint64(rate))), rate, n),
			Prompt: []int{realPrompt}, Tokens: []int{realTokens}, pace: realPace, Rounds: c.Rounds})
	}
	if len(c.Trace) > 0 {
		l := Load{Name: traceLoad, pace: realPace, Rounds: c.Rounds}
		for _, it := range c.Trace {
			l.At, l.Prompt, l.Tokens = append(l.At, it.At), append(l.Prompt, it.Prompt), append(l.Tokens, it.Output)
		}
		out = append(out, l)
	}
	return out
}

// profiledClients are those of the realistic load that Config.Profile is about.
const profiledClients = 64

// Names of loads.
const traceLoad = "trace"

func zeroLoad(clients int) string                    { return fmt.Sprintf("no latency, c=%d", clients) }
func relayLoad(tokens int) string                    { return fmt.Sprintf("relay, %d tokens", tokens) }
func realLoad(clients int) string                    { return fmt.Sprintf("realistic, c=%d", clients) }
func poissonLoad(rate float64) string                { return fmt.Sprintf("realistic, %g/s", rate) }
func tracePiece(items []traffic.Item) []traffic.Item { return items[:min(len(items), traceRequests)] }

// Bounds of the trace-driven load: answers are cut, so that a round ends.
const (
	traceRequests = 80
	traceTokens   = 128
	tracePrompt   = 8000
	traceRate     = 20.0 // a second, on average
)

// Trim makes a trace a load of this size at its own burstiness.
func Trim(items []traffic.Item) []traffic.Item {
	items = slices.Clone(tracePiece(items))
	if len(items) < 2 || items[len(items)-1].At == 0 {
		return nil
	}
	for i := range items {
		items[i].Prompt, items[i].Output = min(items[i].Prompt, tracePrompt), max(1, min(items[i].Output, traceTokens))
	}
	return traffic.Speed(items, items[len(items)-1].At.Seconds()*traceRate/float64(len(items)))
}

// measure runs one load over all sides, in turns.
func (w *world) measure(ctx context.Context, c Config, l Load) (out []Round, err error) {
	for _, s := range w.sides {
		for _, e := range []*Engine{s.p, s.d} {
			if err := e.setPace(ctx, l.pace); err != nil {
				return nil, err
			}
		}
	}
	warm := l
	warm.Count, warm.At, warm.Clients = min(32, max(16, l.Clients)), nil, 16
	for i := range l.Rounds + 1 {
		for _, s := range w.sides {
			load := l
			if i == 0 {
				load = warm
			}
			r, err := s.round(ctx, c, load)
			if err != nil {
				return nil, err
			}
			if i > 0 {
				out = append(out, r)
			}
		}
	}
	fmt.Fprintf(c.Out, "%s: %d rounds of %d sides\n", l.Name, l.Rounds, len(w.sides))
	if ours := w.sides[len(w.sides)-1]; c.Profile != "" && l.Name == realLoad(profiledClients) {
		return out, w.f.Profile(ctx, c.Profile, func(ctx context.Context) { ours.drive(ctx, c, l) })
	}
	return out, nil
}

// after is for the work that trails a stream to be counted to it.
const after = 150 * time.Millisecond

func (s *side) round(ctx context.Context, c Config, l Load) (Round, error) {
	before, err := s.cpu()
	if err != nil {
		return Round{}, err
	}
	began := time.Now()
	answers, tokens := s.drive(ctx, c, l)
	took := time.Since(began)
	r := Round{Side: s.name, Load: l.Name, Requests: len(answers), Failures: map[string]int{}}
	var first, gaps []time.Duration
	for i, a := range answers {
		if err := wrong(a, tokens[i]); err != nil {
			r.Failed++
			r.Failures[clip(err.Error())]++
			continue
		}
		first, gaps = append(first, a.FirstToken), append(gaps, a.Gaps...)
	}
	r.TTFT50, r.TTFT99, r.Gap99 = traffic.Quantile(first, .5), traffic.Quantile(first, .99), traffic.Quantile(gaps, .99)
	r.Rate = float64(len(first)) / took.Seconds()
	select {
	case <-ctx.Done():
		return r, ctx.Err()
	case <-time.After(after):
	}
	used, err := s.cpu()
	if err != nil {
		return r, err
	}
	n := time.Duration(max(1, r.Requests))
	r.Router, r.Helpers, r.FakeD, r.Clients = (used.router-before.router)/n, (used.helpers-before.helpers)/n, (used.d-before.d)/n, (used.own-before.own)/n
	r.Fakes = r.FakeD + (used.p-before.p)/n
	if s.router != nil {
		r.RSS, err = s.router.RSS()
	}
	return r, err
}

// wrong is nil when a stream is whole and exactly the tokens that were due.
func wrong(a traffic.Answer, tokens int) error {
	if err := a.Whole(); err != nil {
		return err
	}
	return a.Is(tokens)
}

func clip(s string) string { return s[:min(len(s), 140)] }

// drive sends a load; the second result is how long each answer should be.
func (s *side) drive(ctx context.Context, c Config, l Load) ([]traffic.Answer, []int) {
	at := func(i int) request {
		return request{prompt: l.Prompt[i%len(l.Prompt)], tokens: l.Tokens[i%len(l.Tokens)]}
	}
	var answers []traffic.Answer
	switch {
	case l.Clients == 0:
		answers = traffic.Arrivals(ctx, l.At, func(ctx context.Context, i int) traffic.Answer { return s.send(ctx, at(i)) })
	case l.Count > 0:
		answers = traffic.Closed(ctx, l.Clients, l.Count, func(ctx context.Context, _, i int) traffic.Answer { return s.send(ctx, at(i)) })
	default:
		answers = traffic.ClosedFor(ctx, l.Clients, c.Round, func(ctx context.Context, _, i int) traffic.Answer { return s.send(ctx, at(i)) })
	}
	tokens := make([]int, len(answers))
	for i := range tokens {
		tokens[i] = at(i).tokens
	}
	return answers, tokens
}

type used struct{ router, helpers, p, d, own time.Duration }

func (s *side) cpu() (u used, err error) {
	for process, to := range map[*fleet.Process]*time.Duration{s.router: &u.router, s.p.Process: &u.p, s.d.Process: &u.d} {
		if process == nil {
			continue
		}
		if *to, err = process.CPU(); err != nil {
			return u, err
		}
	}
	for _, h := range s.helpers {
		one, err := h.CPU()
		if err != nil {
			return u, err
		}
		u.helpers += one
	}
	var own syscall.Rusage
	err = syscall.Getrusage(syscall.RUSAGE_SELF, &own)
	u.own = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	return u, err
}

// of gives the rounds of one side under one load, in their order.
func of(rounds []Round, side, load string) (out []Round) {
	for _, r := range rounds {
		if r.Side == side && r.Load == load {
			out = append(out, r)
		}
	}
	return out
}

// median of a figure over rounds.
func median[T int64 | float64 | time.Duration](rounds []Round, f func(Round) T) T {
	var all []T
	for _, r := range rounds {
		all = append(all, f(r))
	}
	return traffic.Quantile(all, .5)
}

// floorOf names the floor that a side is paired with.
func floorOf(side string) string {
	if kindOf(side) == fake.SGLang {
		return DirectSGLang
	}
	return Direct
}

// added is the median over rounds of a side's figure less its floor's of the same round.
func added(rounds []Round, side, load string, f func(Round) time.Duration) time.Duration {
	ours, base := of(rounds, side, load), of(rounds, floorOf(side), load)
	var all []time.Duration
	for i := range min(len(ours), len(base)) {
		all = append(all, f(ours[i])-f(base[i]))
	}
	return traffic.Quantile(all, .5)
}
