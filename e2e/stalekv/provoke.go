package stalekv

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/surehand/surehand/e2e/pair"
)

const (
	// Lease of P, in seconds. The engine's default is 30; the failure is the same.
	Lease = 3
	// Blocks of P's pool: few, so that a dozen prompts use each of them again.
	Blocks = 16
	// others is how many prompts of other clients P computes meanwhile: more blocks
	// in all than there are, so that none of the first prompt's is spared.
	others    = 12
	lookEvery = 100 * time.Millisecond
	lapseIn   = 60 * time.Second // a multiple of the lease: the machine may be busy
)

// provoke is what happens to P while a request is held on its way to D: the lease
// lapses, as P itself counts, and other clients' prompts take the blocks.
func provoke(ctx context.Context, p string, before float64) error {
	ctx, cancel := context.WithTimeout(ctx, lapseIn)
	defer cancel()
	for {
		c, err := pair.Look(ctx, p)
		if err != nil {
			return err
		}
		if c.Sum(pair.Expired, "", "") > before {
			break
		}
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return fmt.Errorf("P's lease of %d s did not lapse: %w", Lease, ctx.Err())
		}
	}
	return flood(ctx, p)
}

// flood has other clients' prompts use every block of P.
func flood(ctx context.Context, p string) error {
	var all sync.WaitGroup
	failed := make(chan error, others)
	for i := range others {
		all.Go(func() {
			a, err := pair.Ask{Prompt: strings.Repeat(fmt.Sprintf("%d other clients ask other things. ", i), 30), Tokens: 1, Whole: true}.Send(ctx, p)
			if err != nil || !a.Ended() {
				failed <- fmt.Errorf("another client's prompt on P: %s, %w", a, err)
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// expired is how many leases P has counted as lapsed.
func expired(ctx context.Context, p string) (float64, error) {
	c, err := pair.Look(ctx, p)
	return c.Sum(pair.Expired, "", ""), err
}
