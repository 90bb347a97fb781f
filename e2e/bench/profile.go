package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/surehand/surehand/e2e/traffic"
)

// profiled is how long Surehand is looked at.
const profiled = 10 * time.Second

// profiles takes Go's CPU profiles of Temporal and the gateway, at once, while
// the largest closed loop goes on.
func (b *bench) profiles(ctx context.Context) error {
	if b.Profiles == "" {
		return nil
	}
	if err := os.MkdirAll(b.Profiles, 0o755); err != nil {
		return err
	}
	load, stop := context.WithCancel(ctx)
	var loop, all sync.WaitGroup
	loop.Go(func() {
		clients := slices.Max(b.Clients)
		for load.Err() == nil {
			traffic.Closed(ctx, clients, clients*b.Requests, func(ctx context.Context, client, _ int) traffic.Answer {
				return b.client.Send(ctx, b.ask(client))
			})
		}
	})
	failed := make(chan error, len(b.f.Pprof))
	for name, address := range b.f.Pprof {
		all.Go(func() { failed <- b.profile(ctx, name, address) })
	}
	all.Wait()
	stop()
	loop.Wait()
	close(failed)
	var errs []error
	for err := range failed {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (b *bench) profile(ctx context.Context, name, address string) error {
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", address, int(profiled.Seconds()))
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
		return fmt.Errorf("profile of %s: status %d", name, answer.StatusCode)
	}
	file, err := os.Create(filepath.Join(b.Profiles, name+".pprof"))
	if err != nil {
		return err
	}
	_, err = io.Copy(file, answer.Body)
	return errors.Join(err, file.Close())
}
