package peers

import (
	"context"
	"errors"
	"fmt"

	"github.com/surehand/surehand/e2e/peers/fake"
)

// Report is what a run found.
type Report struct {
	Config
	Rounds  []Round
	Idle    map[string]int64 // resident bytes of each router before any work
	Open    map[string]Open
	Faults  []Fault
	Skipped []string
	Sides   []string
}

// Run measures, then breaks things.
func Run(ctx context.Context, c Config) (r *Report, err error) {
	r = &Report{Config: c, Idle: map[string]int64{}, Open: map[string]Open{}}
	if c.Loads || c.Streams > 0 {
		if err := r.loads(ctx); err != nil {
			return r, err
		}
	}
	if c.Faults {
		r.Faults, err = faults(ctx, c)
	}
	return r, err
}

func (r *Report) loads(ctx context.Context) (err error) {
	w, skipped, err := build(ctx, r.Config)
	if w != nil && w.f != nil {
		defer func() { err = errors.Join(err, w.stop()) }()
	}
	if r.Skipped = skipped; err != nil {
		return err
	}
	for _, s := range w.sides {
		r.Sides = append(r.Sides, s.name)
		if s.router != nil {
			r.Idle[s.name] = s.idle
		}
	}
	for _, l := range r.Config.loads() {
		rounds, err := w.measure(ctx, r.Config, l)
		if err != nil {
			return fmt.Errorf("%s: %w", l.Name, err)
		}
		r.Rounds = append(r.Rounds, rounds...)
	}
	if r.Config.Streams > 0 {
		if r.Open, err = w.streams(ctx, r.Config); err != nil {
			return err
		}
	}
	return nil
}

// isRouter says whether a side has a process of its own between client and engines.
func isRouter(side string) bool { return side != Direct && side != DirectSGLang }

func kindOf(side string) fake.Kind {
	for _, r := range Routers {
		if r.Name == side {
			return r.Kind
		}
	}
	return fake.VLLM
}
