package connector

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
	"github.com/surehand/surehand/workers/vllmenv"
)

const (
	answerWithin = 5 * time.Minute  // of one request; a bound for a busy machine
	restWithin   = time.Minute      // for everything to be given back
	lease        = 2 * time.Second  // short, so that what only its end frees is freed soon
	longLease    = 10 * time.Second // of fleets in which a busy machine must not end one
	// What every engine has: 64 blocks of 128 tokens, 8 requests at once.
	cacheBlocks = 64
	sequences   = 8
	serialBelow = 100  // tokens: most prompts here are announced layer by layer
	context1    = 1024 // tokens of prompt and answer
)

// rig is shared by all tests: an engine's start costs more than a test.
var rig *engines

// engines is a fleet whose engines are vLLM servers, and one server that
// computes everything itself: what is right is what it says.
type engines struct {
	*fleet.Fleet
	host  *vllmenv.Host
	vllm  map[string]*vllmenv.Engine // by seat
	plain *vllmenv.Engine
	dir   string
	name  string // that its engines' begin with, at the host
	env   vllmenv.Env
	made  func(fleet.Seat) vllmenv.Options // what the vLLM of a seat is
	more  map[string]map[string]any        // and its connector is told besides
	lease time.Duration
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	if flag.Parse(); !asked || testing.Short() {
		fmt.Println("skipped: go test -tags vllm ./e2e/connector")
		return 0
	}
	dir, err := os.MkdirTemp("", "conn-")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer func() {
		if code == 0 {
			_ = os.RemoveAll(dir) // the system's own folder for what nobody needs
		}
	}()
	rig, err = open(context.Background(), dir)
	defer func() {
		if err := rig.close(); err != nil {
			fmt.Println("close:", err)
			code = 1
		}
	}()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	began := time.Now()
	code = m.Run()
	fmt.Printf("tests: %.0f s; logs of a failure: %s\n", time.Since(began).Seconds(), dir)
	return code
}

func open(ctx context.Context, dir string) (*engines, error) {
	r := &engines{vllm: map[string]*vllmenv.Engine{}, dir: filepath.Join(dir, "f"), made: seatOf, lease: lease,
		more: map[string]map[string]any{"p1": {"serial_below": serialBelow}}}
	began := time.Now()
	tell := func(what string) {
		fmt.Printf("%s: %.0f s\n", what, time.Since(began).Seconds())
		began = time.Now()
	}
	var err error
	if built, err = fleet.Build(ctx, true); err != nil {
		return r, err
	}
	tell("programs")
	cache, err := os.UserCacheDir()
	if err != nil {
		return r, err
	}
	if r.env, err = vllmenv.Install(ctx, vllmenv.DefaultDir(cache), os.Stderr); err != nil {
		return r, err
	}
	tell("vLLM installed")
	if r.host, err = r.env.Load(ctx, dir); err != nil {
		return r, err
	}
	tell(fmt.Sprintf("vLLM imported (%.0f s of CPU time)", r.host.CPU.Seconds()))
	if r.plain, err = r.host.Start(ctx, options("plain")); err != nil {
		return r, err
	}
	if err := r.stand(ctx, 1, 2); err != nil {
		return r, err
	}
	tell("P, two D, a plain engine and the fleet serve")
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	first, refused := r.gateway().Insist(ctx, traffic.Ask{Model: vllmenv.Served, Prompt: corpus, MaxTokens: 4}, answerWithin, 100*time.Millisecond)
	if err := first.Whole(); err != nil {
		return r, fmt.Errorf("the first handoff: %w", err)
	}
	tell(fmt.Sprintf("the first handoff, refused %d times before", refused))
	return r, nil
}

// built is every program of a fleet.
var built fleet.Programs

func options(name string) vllmenv.Options {
	return vllmenv.Options{Name: name, CacheBytes: cacheBlocks * vllmenv.BlockBytes, Sequences: sequences, Context: context1}
}

func seatOf(s fleet.Seat) vllmenv.Options { return options(s.ID) }

// stand starts a fleet of r's engines.
func (r *engines) stand(ctx context.Context, prefill, decode int) (err error) {
	serves := r.made(fleet.Seat{}).Served
	if serves == "" {
		serves = vllmenv.Served
	}
	r.Fleet, err = fleet.Start(ctx, built, r.dir, fleet.Options{Prefill: prefill, Decode: decode, Gateways: 1, Lease: r.lease, Engine: r.engine, Serves: serves})
	return err
}

// others is a fleet of other engines beside the tests' own, of the same import,
// until the test ends.
func others(t *testing.T, name string, prefill, decode int, made func(fleet.Seat) vllmenv.Options, more map[string]map[string]any) *engines {
	t.Helper()
	r := &engines{more: more, vllm: map[string]*vllmenv.Engine{}, host: rig.host, plain: rig.plain, env: rig.env, lease: longLease, dir: filepath.Join(filepath.Dir(rig.dir), name),
		made: made, name: name + "-"}
	t.Cleanup(func() {
		var errs []error
		if r.Fleet != nil {
			errs = append(errs, r.Stop())
		}
		for _, e := range r.vllm {
			errs = append(errs, e.Kill())
		}
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	})
	must(t, r.stand(t.Context(), prefill, decode))
	return r
}

// engine starts the vLLM of a seat; its front is a process of the fleet.
func (r *engines) engine(ctx context.Context, s fleet.Seat) ([]string, error) {
	front := filepath.Join(r.dir, s.ID+"-front.sock")
	o := r.made(s)
	o.Name = s.ID
	o = o.Connector(s.Role == "prefill", s.Daemon, front, r.more[s.ID])
	o.Name = r.name + s.ID
	if s.ID == "d2" && r == rig {
		o = o.Multi()
	}
	e, err := r.host.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	r.vllm[s.ID] = e
	return []string{"vllm", "--url", e.URL, "--connector-socket", front}, nil
}

func (r *engines) close() error {
	var errs []error
	if r.Fleet != nil {
		errs = append(errs, r.Fleet.Stop())
	}
	if r.host != nil {
		errs = append(errs, r.host.Close())
	}
	return errors.Join(errs...)
}

func (r *engines) gateway() *traffic.Client { return traffic.NewClient(r.HTTP["g1"]) }
