package peers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

// Fault is one row: what was done, and what each router made of it.
type Fault struct {
	Name   string
	Values map[string]int
	Words  map[string]string
}

// Names of the faults that goals speak of.
const (
	faultP        = "one of two idle P killed, then 5 requests a second: failed"
	faultD        = "one of two idle D killed, then 5 requests a second: failed"
	faultKey      = "the same key twice at once and once after: prefills"
	faultFull     = "D takes one at a time and answers 503 past it, 8 at once: prefills for nothing"
	faultRevision = "D of another revision: prefills for nothing"
	faultDead     = "the only D dead: prefills for nothing"
	faultGateway  = "router killed (-9) before the first token, asked again with its key: answered under other names"
)

const (
	outageEvery = 200 * time.Millisecond
	atOnce      = 8
	faultWithin = 60 * time.Second
	againWithin = 15 * time.Second
	refusedIn   = 8 * time.Second // a request that nobody can serve is given up by its client
)

// rig is one router in front of fresh engines.
type rig struct {
	w       *world
	s       *side
	outages int // requests after an engine died
	p, d    []*Engine
	restart func(context.Context) error
}

// scene is how engines are started.
type scene struct {
	p, d         int
	pArgs, dArgs []string
	ours         []string // flags of ours
}

// faults runs every fault in front of every router that can be had.
func faults(ctx context.Context, c Config) (out []Fault, err error) {
	w, err := newWorld(ctx)
	if w != nil && w.f != nil {
		defer func() { err = errors.Join(err, w.stop()) }()
	}
	if err != nil {
		return nil, err
	}
	for _, f := range []struct {
		name string
		scene
		run func(*rig, context.Context) (int, string, error)
	}{
		{faultP, scene{p: 2, d: 1}, func(g *rig, ctx context.Context) (int, string, error) { return g.outage(ctx, g.p[0]) }},
		{faultD, scene{p: 1, d: 2}, func(g *rig, ctx context.Context) (int, string, error) { return g.outage(ctx, g.d[0]) }},
		{faultKey, scene{p: 1, d: 1}, (*rig).sameKey},
		{faultFull, scene{p: 1, d: 1, dArgs: []string{"--max-running", "1"}, ours: []string{"--decode-concurrency", "1"}}, (*rig).full},
		{faultRevision, scene{p: 1, d: 1, dArgs: []string{"--revision", "r2"}}, (*rig).forNothing},
		{faultDead, scene{p: 1, d: 1}, (*rig).dead},
		{faultGateway, scene{p: 1, d: 1}, (*rig).gateway},
	} {
		row := Fault{Name: f.name, Values: map[string]int{}, Words: map[string]string{}}
		for _, name := range append([]string{Ours}, c.Routers...) {
			g, err := w.rig(ctx, c, name, f.scene)
			if errors.Is(err, errSkipped) {
				continue
			}
			if err != nil {
				return out, fmt.Errorf("%s: %s: %w", f.name, name, err)
			}
			if row.Values[name], row.Words[name], err = f.run(g, ctx); err != nil {
				return out, fmt.Errorf("%s: %s: %w", f.name, name, err)
			}
			fmt.Fprintf(c.Out, "%s: %s: %d (%s)\n", f.name, name, row.Values[name], row.Words[name])
			if err := g.end(); err != nil {
				return out, err
			}
		}
		out = append(out, row)
	}
	return out, nil
}

func (w *world) rig(ctx context.Context, c Config, name string, sc scene) (*rig, error) {
	g := &rig{w: w, outages: c.Outage, s: &side{name: name, kind: kindOf(name)}}
	for i := range sc.p {
		e, err := w.add(ctx, g.s.kind, "p", i+1, sc.pArgs...)
		if err != nil {
			return nil, err
		}
		g.p = append(g.p, e)
	}
	for i := range sc.d {
		e, err := w.add(ctx, g.s.kind, "d", i+1, sc.dArgs...)
		if err != nil {
			return nil, err
		}
		g.d = append(g.d, e)
	}
	g.restart = func(ctx context.Context) (err error) {
		g.s.address, err = w.ours(ctx, g.p, g.d, sc.ours...)
		return err
	}
	if name != Ours {
		r := router(name)
		bin, err := r.find(ctx, c.Install)
		if err != nil {
			return nil, err
		}
		g.restart = func(ctx context.Context) (err error) {
			_, g.s.address, err = r.start(ctx, w, bin, g.p, g.d)
			return err
		}
	}
	if err := g.restart(ctx); err != nil {
		return nil, err
	}
	g.s.client = traffic.NewClient(g.s.address)
	return g, nil
}

func router(name string) Router {
	for _, r := range Routers {
		if r.Name == name {
			return r
		}
	}
	return Router{Name: name, skip: "not known"}
}

// process is the router's.
func (g *rig) process() *fleet.Process {
	if g.s.name == Ours {
		return g.w.f.Process(fleet.Gateway)
	}
	return g.w.f.Process(g.s.name)
}

func (g *rig) end() error {
	g.s.client.Close()
	errs := []error{g.process().Kill()}
	for _, e := range append(g.p, g.d...) {
		errs = append(errs, e.Kill())
	}
	return errors.Join(errs...)
}

// prefills is how many any P has begun.
func (g *rig) prefills(ctx context.Context) (n int, err error) {
	for _, e := range g.p {
		if !e.Alive() {
			continue
		}
		t, err := e.seen(ctx)
		if err != nil {
			return 0, err
		}
		n += int(t.Prefills)
	}
	return n, nil
}

func (g *rig) ask(ctx context.Context, q request, within time.Duration) traffic.Answer {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return g.s.send(ctx, q)
}

func (g *rig) outage(ctx context.Context, dies *Engine) (int, string, error) {
	if err := g.s.serves(ctx); err != nil {
		return 0, "", err
	}
	if err := dies.Kill(); err != nil {
		return 0, "", err
	}
	failed, last := 0, time.Duration(0)
	began := time.Now()
	at := make([]time.Duration, g.outages)
	for i := range at {
		at[i] = time.Duration(i) * outageEvery
	}
	var mu sync.Mutex
	traffic.Arrivals(ctx, at, func(ctx context.Context, i int) traffic.Answer {
		a := g.ask(ctx, request{prompt: shortPrompt, tokens: 2}, 5*time.Second)
		if wrong(a, 2) != nil {
			mu.Lock()
			failed, last = failed+1, max(last, time.Since(began))
			mu.Unlock()
		}
		return a
	})
	words := fmt.Sprintf("all %d served", g.outages)
	if failed > 0 {
		words = fmt.Sprintf("of %d; last failure %.1f s after the kill, %.0f s watched", g.outages, last.Seconds(), time.Since(began).Seconds())
	}
	return failed, words, nil
}

func (g *rig) sameKey(ctx context.Context) (int, string, error) {
	if err := g.s.serves(ctx); err != nil {
		return 0, "", err
	}
	before, err := g.prefills(ctx)
	if err != nil {
		return 0, "", err
	}
	q := request{prompt: shortPrompt, tokens: 4, key: "one-key", same: true}
	var all sync.WaitGroup
	answers := make([]traffic.Answer, 3)
	for i := range 2 {
		all.Go(func() { answers[i] = g.ask(ctx, q, faultWithin) })
	}
	all.Wait()
	answers[2] = g.ask(ctx, q, faultWithin)
	whole := 0
	for _, a := range answers {
		if wrong(a, 4) == nil {
			whole++
		}
	}
	now, err := g.prefills(ctx)
	return now - before, fmt.Sprintf("%d of 3 answered whole", whole), err
}

// full: eight at once for a D that runs one. A prefill was for nothing unless
// its request was answered.
func (g *rig) full(ctx context.Context) (int, string, error) {
	if err := g.s.serves(ctx); err != nil {
		return 0, "", err
	}
	if err := g.d[0].setPace(ctx, pace{step: 100 * time.Millisecond}); err != nil {
		return 0, "", err
	}
	before, err := g.prefills(ctx)
	if err != nil {
		return 0, "", err
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	whole := 0
	for range atOnce {
		all.Go(func() {
			if a := g.ask(ctx, request{prompt: shortPrompt, tokens: 10}, faultWithin); wrong(a, 10) == nil {
				mu.Lock()
				whole++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	now, err := g.prefills(ctx)
	return now - before - whole, fmt.Sprintf("%d of %d answered, %d prefills", whole, atOnce, now-before), err
}

// forNothing asks for what nobody can serve. Some routers do not come up at all
// in front of such a D; then nothing was run.
func (g *rig) forNothing(ctx context.Context) (int, string, error) {
	before, err := g.prefills(ctx)
	if err != nil {
		return 0, "", err
	}
	a := g.ask(ctx, request{prompt: shortPrompt, tokens: 4}, refusedIn)
	now, err := g.prefills(ctx)
	words := "answered, by a D of another revision"
	if bad := wrong(a, 4); bad != nil {
		words = "refused: " + clip(bad.Error())
	}
	return now - before, words, err
}

func (g *rig) dead(ctx context.Context) (int, string, error) {
	if err := g.s.serves(ctx); err != nil {
		return 0, "", err
	}
	if err := g.d[0].Kill(); err != nil {
		return 0, "", err
	}
	return g.forNothing(ctx)
}

// gateway kills the router amid a prefill, starts it again and asks again.
func (g *rig) gateway(ctx context.Context) (int, string, error) {
	if err := g.s.serves(ctx); err != nil {
		return 0, "", err
	}
	if err := g.p[0].setPace(ctx, pace{prefill1k: 4 * time.Second}); err != nil {
		return 0, "", err
	}
	before, err := g.prefills(ctx)
	if err != nil {
		return 0, "", err
	}
	q := request{prompt: shortPrompt, tokens: 4, key: "again", same: true}
	first := make(chan traffic.Answer, 1)
	go func() { first <- g.ask(ctx, q, faultWithin) }()
	for until := time.Now().Add(faultWithin); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		now, err := g.prefills(ctx)
		if err != nil {
			return 0, "", err
		}
		if now > before {
			break
		}
	}
	if err := g.process().Kill(); err != nil {
		return 0, "", err
	}
	<-first
	g.s.client.Close()
	if err := g.restart(ctx); err != nil {
		return 0, "", err
	}
	g.s.client = traffic.NewClient(g.s.address)
	a := g.ask(ctx, q, faultWithin)
	for until := time.Now().Add(againWithin); wrong(a, 4) != nil && time.Now().Before(until); {
		select { // as clients do
		case <-ctx.Done():
			return 0, "", ctx.Err()
		case <-time.After(outageEvery):
		}
		a = g.ask(ctx, q, faultWithin)
	}
	if bad := wrong(a, 4); bad != nil {
		return 1, "not answered: " + clip(bad.Error()), nil
	}
	if a.Handoff == "" || !strings.HasPrefix(a.Handoff, "k") { // named after its key, in whichever life
		return 1, "answered, as a new request", nil
	}
	again := g.ask(ctx, q, faultWithin)
	if wrong(again, 4) != nil || again.Handoff != a.Handoff || !again.Joined {
		return 1, "answered, but the key does not stand for that answer", nil
	}
	return 0, "answered once; a third try joins that answer", nil
}
