package fleet

import (
	"context"
	"net/http"
	"os"

	"github.com/surehand/surehand/activities/engine/reference"
)

// Foreign is a program that is not one of a fleet's own.
type Foreign struct {
	Name, Path string
	Args       []string
	Env        []string // beside this process's own
	Says       bool     // prints {"ready":true,…} on stdout once it serves
	Answers    string   // a URL that answers 200 once it serves; empty: its line is enough
}

// Bare is a fleet of nothing yet. The caller stops it.
func Bare(p Programs, dir string) (*Fleet, error) {
	f := &Fleet{Dir: dir, programs: p, spawn: newSpawner(), HTTP: map[string]string{}, GRPC: map[string]string{}, Pprof: map[string]string{},
		byName: map[string]*Process{}, engines: reference.NewConnections(nil, 0)}
	return f, os.MkdirAll(dir, 0o700)
}

// Add starts a program that ends with the fleet, and waits until it serves. One
// of the same name is stopped first.
func (f *Fleet) Add(ctx context.Context, o Foreign) (*Process, error) {
	s := spec{name: o.Name, path: o.Path, args: o.Args, env: o.Env, says: o.Says}
	if o.Answers != "" {
		s.answers = func(ctx context.Context) error { return answers200(ctx, once, o.Answers) }
	}
	if old := f.byName[o.Name]; old != nil {
		if err := old.Kill(); err != nil {
			return nil, err
		}
		old.spec = s
		return old, old.Start(ctx)
	}
	p := f.add(s)
	return p, p.Start(ctx)
}

// Address is a loopback address for one of them.
func Address() (string, error) { return address() }

func answers200(ctx context.Context, by *http.Client, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	return asked200(by, r)
}
