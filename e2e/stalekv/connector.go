package stalekv

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
	"github.com/surehand/surehand/workers/vllmenv"
)

// ErrCommitted says that an attempt was committed after its lease.
var ErrCommitted = errors.New("an attempt was committed after its lease had lapsed")

// connector is the same failure with our own connector in the engines and a
// transferd beside each: the router itself stands still between P and D until the
// lease has lapsed and other clients' prompts have taken P's blocks.
func (d *demo) connector(ctx context.Context) (err error) {
	if err := errors.Join(d.rig.P.Kill(), d.rig.D.Kill()); err != nil { // an idle worker with NIXL burns half a core
		return err
	}
	engines := map[string]*vllmenv.Engine{}
	f, err := fleet.Start(ctx, d.rig.Programs, filepath.Join(d.rig.Dir, "c"), fleet.Options{Prefill: 1, Decode: 1, Gateways: 1,
		Lease: Lease * time.Second, Serves: vllmenv.Served, Engine: d.seat(engines)})
	defer func() { err = errors.Join(err, f.Stop()) }()
	if err != nil {
		return err
	}
	ask := traffic.Ask{Model: vllmenv.Served, Prompt: "Once more: " + strings.Repeat(sentence, 10), MaxTokens: question.Tokens}
	want := traffic.NewClient(address(d.rig.Plain.URL)).Send(ctx, ask)
	if err := want.Whole(); err != nil {
		return fmt.Errorf("one engine alone: %w", err)
	}
	d.say("\none engine alone:       %q", want.Text)
	gateway := traffic.NewClient(f.HTTP[fleet.Gateway])
	if err := fault.Serves(ctx, f, gateway); err != nil {
		return err
	}
	struck, err := fault.Strike(ctx, f, gateway, ask, fault.Prefill, func(at fleet.Event) error {
		return d.lapse(ctx, f, at, engines["p1"].URL)
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, struck.Whole())
	}
	switch {
	case struck.Whole() == nil:
		d.say("Surehand's connector:   HTTP %d, %s, %q", struck.Status, struck.Finish, struck.Text)
		if struck.Text != want.Text {
			return ErrDelivered
		}
	case struck.Typed() == nil:
		d.say("Surehand's connector:   HTTP %d, refused: %s (%s)", struck.Status, struck.Failure.Code, struck.Failure.Message)
	default:
		return errors.Join(ErrNotRefused, struck.Typed())
	}
	for _, a := range fault.Committed(f.Since(struck.Mark)) {
		if a == struck.Attempt {
			return ErrCommitted
		}
	}
	return d.drawn(ctx, f, struck.Handoff)
}

// seat starts the vLLM beside a daemon of the fleet.
func (d *demo) seat(engines map[string]*vllmenv.Engine) func(context.Context, fleet.Seat) ([]string, error) {
	return func(ctx context.Context, s fleet.Seat) ([]string, error) {
		front := filepath.Join(d.rig.Dir, "c", s.ID+"-front.sock")
		o := vllmenv.Options{Name: s.ID, CacheBytes: Blocks * vllmenv.BlockBytes}.Connector(s.Role == "prefill", s.Daemon, front, nil)
		e, err := d.rig.Host.Start(ctx, o)
		if err != nil {
			return nil, err
		}
		engines[s.ID] = e
		return []string{"vllm", "--url", e.URL, "--connector-socket", front}, nil
	}
}

// lapse stops the router until the attempt's lease has ended, and lets others use
// P meanwhile.
func (d *demo) lapse(ctx context.Context, f *fleet.Fleet, at fleet.Event, p string) error {
	m := f.Mark()
	router := f.Process(fleet.Gateway)
	if err := router.Pause(); err != nil {
		return err
	}
	_, lapsed := f.Await(ctx, m, func(e fleet.Event) bool { return e.Attempt == at.Attempt && e.Name == "expire" })
	return errors.Join(lapsed, flood(ctx, p), router.Resume())
}
