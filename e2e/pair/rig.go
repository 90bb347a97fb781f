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
	Programs fleet.Programs
	Host     *vllmenv.Host
	P, D     *vllmenv.Engine
	// Plain computes everything itself: what is right is what it says.
	Plain *vllmenv.Engine
	Fleet *fleet.Fleet
}

// Options of a rig.
type Options struct {
	P, D  vllmenv.Options // names, ports and connectors are set by Open
	Lease int             // of P, in seconds; 0: the engine's default
	Serve []string        // flags of the gateway; its engines are P and D
	// Front gives the URLs that the gateway is told in place of P's and D's.
	Front func(p, d *vllmenv.Engine) (string, string)
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
	env, err := vllmenv.Install(ctx, vllmenv.DefaultDir(cache), out)
	if err != nil {
		return r, err
	}
	if r.Host, err = env.Load(ctx, dir); err != nil {
		return r, err
	}
	if err := r.engines(ctx, o); err != nil {
		return r, err
	}
	p, d := r.P.URL, r.D.URL
	if o.Front != nil {
		p, d = o.Front(r.P, r.D)
	}
	r.Fleet, err = fleet.StartNative(ctx, r.Programs, filepath.Join(dir, "fleet"), fleet.Native{Prefill: []string{p}, Decode: []string{d}, Args: o.Serve})
	return r, err
}

// engines starts the three beside each other.
func (r *Rig) engines(ctx context.Context, o Options) error {
	o.P.Name, o.D.Name = "p", "d"
	p, errP := o.P.NIXL("kv_producer", o.Lease)
	d, errD := o.D.NIXL("kv_consumer", o.Lease)
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
	if r.Host != nil {
		errs = append(errs, r.Host.Close())
	}
	return errors.Join(errs...)
}
