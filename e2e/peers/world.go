package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/peers/fake"
	"github.com/surehand/surehand/e2e/traffic"
)

// world is engines, routers and what ours stands on.
type world struct {
	f      *fleet.Fleet
	engine string // the fakes' program
	dir    string
	sides  []*side
}

// Engine is one fake.
type Engine struct {
	URL, Side string
	*fleet.Process
}

// side is one way to the engines.
type side struct {
	name    string
	kind    fake.Kind
	address string
	client  *traffic.Client // nil: the generator plays the router
	router  *fleet.Process  // nil: there is none
	helpers []*fleet.Process
	p, d    *Engine
	idle    int64 // bytes of the router before any work
}

func newWorld(ctx context.Context) (*world, error) {
	p, err := fleet.Build(ctx, true)
	if err != nil {
		return nil, err
	}
	w := &world{}
	if w.engine, err = fleet.Program(ctx, "fakeengine", "./e2e/cmd/fakeengine"); err != nil {
		return nil, err
	}
	if w.dir, err = os.MkdirTemp("", "surehand-peers-"); err != nil {
		return nil, err
	}
	w.f, err = fleet.Bare(p, w.dir)
	return w, err
}

func (w *world) stop() error {
	for _, s := range w.sides {
		if s.client != nil {
			s.client.Close()
		}
	}
	return errors.Join(w.f.Stop(), os.RemoveAll(w.dir))
}

// add starts one fake; its name ends with p or d and a number.
func (w *world) add(ctx context.Context, kind fake.Kind, role string, n int, args ...string) (*Engine, error) {
	e := &Engine{}
	name := fmt.Sprintf("fake-%s-%s%d", kind, role, n)
	at, err := fleet.Address()
	if err != nil {
		return nil, err
	}
	all := []string{"--name", name, "--kind", string(kind), "--listen", at}
	if role == "p" {
		if e.Side, err = fleet.Address(); err != nil {
			return nil, err
		}
		all = append(all, "--side", e.Side)
	}
	e.URL = "http://" + at
	e.Process, err = w.f.Add(ctx, fleet.Foreign{Name: name, Path: w.engine, Args: append(all, args...), Says: true})
	return e, err
}

// pair starts a P and a D.
func (w *world) pair(ctx context.Context, kind fake.Kind) (p, d *Engine, err error) {
	if p, err = w.add(ctx, kind, "p", 1); err != nil {
		return nil, nil, err
	}
	d, err = w.add(ctx, kind, "d", 1)
	return p, d, err
}

func (e *Engine) setPace(ctx context.Context, p pace) error {
	return e.set(ctx, fake.Pace{PrefillPer1k: p.prefill1k, Step: p.step})
}

func (e *Engine) set(ctx context.Context, p fake.Pace) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL+fake.PathPace, bytes.NewReader(text))
	if err != nil {
		return err
	}
	return told(r, nil)
}

func (e *Engine) seen(ctx context.Context) (t fake.Told, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL+fake.PathSeen, nil)
	if err != nil {
		return t, err
	}
	return t, told(r, &t)
}

func told(r *http.Request, into any) error {
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %d", r.URL.Path, resp.StatusCode)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// ours starts Surehand in front of engines: Temporal if there is none yet, and
// one gateway. Nothing else is needed.
func (w *world) ours(ctx context.Context, p, d []*Engine, args ...string) (string, error) {
	if w.f.TemporalAddress == "" {
		if err := w.f.StartTemporal(ctx); err != nil {
			return "", err
		}
	}
	n := fleet.Native{Args: args}
	for _, e := range p {
		n.Prefill = append(n.Prefill, e.URL)
	}
	for _, e := range d {
		n.Decode = append(n.Decode, e.URL)
	}
	err := w.f.Serve(ctx, n)
	return w.f.HTTP[fleet.Gateway], err
}

// build starts everything of a run of loads. What cannot be had is told as skipped.
func build(ctx context.Context, c Config) (w *world, skipped []string, err error) {
	if w, err = newWorld(ctx); err != nil {
		return w, nil, err
	}
	w.f.Options.Profiles = c.Profile != ""
	p, d, err := w.pair(ctx, fake.VLLM)
	if err != nil {
		return w, nil, err
	}
	w.sides = []*side{{name: Direct, kind: fake.VLLM, p: p, d: d}}
	for _, r := range Routers {
		if !strings.Contains(" "+strings.Join(c.Routers, " ")+" ", " "+r.Name+" ") {
			continue
		}
		s := &side{name: r.Name, kind: r.Kind, p: p, d: d}
		bin, err := r.find(ctx, c.Install)
		if errors.Is(err, errSkipped) {
			skipped = append(skipped, fmt.Sprintf("%s %s: %s", r.Name, r.Version, err))
			continue
		}
		if err == nil && r.Kind == fake.SGLang {
			if s.p, s.d, err = w.pair(ctx, r.Kind); err == nil {
				w.sides = append(w.sides, &side{name: DirectSGLang, kind: r.Kind, p: s.p, d: s.d})
			}
		}
		if err == nil {
			s.router, s.address, err = r.start(ctx, w, bin, []*Engine{s.p}, []*Engine{s.d})
		}
		if err != nil {
			return w, skipped, fmt.Errorf("%s: %w", r.Name, err)
		}
		w.sides = append(w.sides, s)
	}
	s := &side{name: Ours, kind: fake.VLLM, p: p, d: d}
	if s.address, err = w.ours(ctx, []*Engine{p}, []*Engine{d}, strings.Fields(c.Args)...); err != nil {
		return w, skipped, err
	}
	s.router, s.helpers = w.f.Process(fleet.Gateway), []*fleet.Process{w.f.Process(fleet.Temporal)}
	w.sides = append(w.sides, s)
	return w, skipped, w.settle(ctx)
}

// warmWithin bounds how long a router may take until it serves.
const warmWithin = 30 * time.Second

// settle waits until each side serves, and notes its memory before any work.
func (w *world) settle(ctx context.Context) error {
	for _, s := range w.sides {
		if s.address != "" {
			s.client = traffic.NewClient(s.address)
		}
		if err := s.serves(ctx); err != nil {
			return err
		}
		if s.router == nil {
			continue
		}
		var err error
		if s.idle, err = s.router.RSS(); err != nil {
			return err
		}
	}
	return nil
}

func (s *side) serves(ctx context.Context) error {
	var a traffic.Answer
	for until := time.Now().Add(warmWithin); time.Now().Before(until); {
		if a = s.send(ctx, request{prompt: 8, tokens: 2}); a.Is(2) == nil && a.Whole() == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s does not serve: %w", s.name, errors.Join(a.Whole(), a.Is(2)))
}
