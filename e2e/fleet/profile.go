package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// profiled is how long processes are looked at.
const profiled = 10 * time.Second

// Profile writes a CPU profile of each process that serves one (Options.Profiles)
// into dir, NAME.pprof, taken at once while load goes on again and again.
func (f *Fleet) Profile(ctx context.Context, dir string, load func(context.Context)) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	looking, stop := context.WithCancel(ctx)
	defer stop()
	var loop sync.WaitGroup
	loop.Go(func() {
		for looking.Err() == nil {
			load(ctx)
		}
	})
	taken := make(chan error)
	for name, address := range f.Pprof {
		what := fmt.Sprintf("profile?seconds=%d", int(profiled.Seconds()))
		go func() { taken <- SaveProfile(ctx, address, what, filepath.Join(dir, name+".pprof")) }()
	}
	var failed []error
	for range f.Pprof {
		failed = append(failed, <-taken)
	}
	stop()
	loop.Wait()
	return errors.Join(failed...)
}

// SaveProfile writes to a file what a process serves at address (Fleet.Pprof): what
// is the profile's name, with its query.
func SaveProfile(ctx context.Context, address, what, to string) error {
	url := fmt.Sprintf("http://%s/debug/pprof/%s", address, what)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: status %d", url, answer.StatusCode)
	}
	file, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, answer.Body)
	return errors.Join(err, file.Close())
}
