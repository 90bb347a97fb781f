package pair

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/workers/vllmenv"
)

// Rig is one import of vLLM and the engines forked from it. An idle worker with
// NIXL burns half a core: close it as soon as it has told what it should.
type Rig struct {
	Dir      string
	Env      vllmenv.Env
	Programs fleet.Programs
	Host     *vllmenv.Host
	P, D     *vllmenv.Engine
	// Plain computes everything itself: what is right is what it says.
	Plain *vllmenv.Engine
	Fleet *fleet.Fleet
	// InP and InD stand in front of P and D, as the gateway sees them.
	InP, InD *Front
}

// Options of a rig.
type Options struct {
	P, D  vllmenv.Options // names, ports and connectors are set by Open
	Lease int             // of the pair, in seconds; 0: the engine's default
	Serve []string        // flags of the gateway; its engines are P and D
}

// Open installs vLLM where it is missing, and starts P, D, the plain engine and
// the gateway in front of the pair. The caller closes the rig, also when Open fails.
func Open(ctx context.Context, dir string, out io.Writer, o Options) (*Rig, error) {
	r := &Rig{Dir: dir}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return r, err
	}
	var err error
	if r.Programs, err = fleet.Build(ctx, true); err != nil {
		return r, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return r, err
	}
	if r.Env, err = vllmenv.Install(ctx, vllmenv.DefaultDir(cache), out); err != nil {
		return r, err
	}
	if r.Host, err = r.Env.Load(ctx, dir); err != nil {
		return r, err
	}
	if err := r.engines(ctx, o); err != nil {
		return r, err
	}
	if r.InP, err = NewFront(r.P.URL); err != nil {
		return r, err
	}
	if r.InD, err = NewFront(r.D.URL); err != nil {
		return r, err
	}
	r.Fleet, err = fleet.StartNative(ctx, r.Programs, filepath.Join(dir, "fleet"), r.Native(o.Serve...))
	return r, err
}

// Native is what the gateway is told of the pair.
func (r *Rig) Native(args ...string) fleet.Native {
	return fleet.Native{Prefill: []string{r.InP.URL}, Decode: []string{r.InD.URL}, Args: args}
}

// engines starts the three beside each other.
func (r *Rig) engines(ctx context.Context, o Options) error {
	o.P.Name, o.D.Name = "p", "d"
	p, errP := o.P.NIXL("kv_producer", o.Lease)
	d, errD := o.D.NIXL("kv_consumer", o.Lease) // its heartbeats go by the lease as well
	if err := errors.Join(errP, errD); err != nil {
		return err
	}
	var all sync.WaitGroup
	var failed [3]error
	all.Go(func() { r.P, failed[0] = r.Host.Start(ctx, p) })
	all.Go(func() { r.D, failed[1] = r.Host.Start(ctx, d) })
	all.Go(func() { r.Plain, failed[2] = r.Host.Start(ctx, vllmenv.Options{Name: "plain"}) })
	all.Wait()
	return errors.Join(failed[:]...)
}

// URL is where a client asks.
func (r *Rig) URL() string { return "http://" + r.Fleet.HTTP[fleet.Gateway] }

// Close ends everything that the rig started.
func (r *Rig) Close() error {
	var errs []error
	if r.Fleet != nil {
		errs = append(errs, r.Fleet.Stop())
	}
	for _, f := range []*Front{r.InP, r.InD} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	if r.Host != nil {
		errs = append(errs, r.Host.Close())
	}
	return errors.Join(errs...)
}
