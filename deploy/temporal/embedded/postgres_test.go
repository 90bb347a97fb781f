package embedded

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
)

// slowStore takes its time to say that another has the lock.
type slowStore struct{ takes time.Duration }

func (s slowStore) QueryRow(ctx context.Context, _ string, _ ...any) pgx.Row { return slowRow{s, ctx} }

type slowRow struct {
	slowStore
	ctx context.Context
}

func (r slowRow) Scan(into ...any) error {
	select {
	case <-time.After(r.takes):
		*into[0].(*bool) = false
		return nil
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

// The wait for the lock may end while the store is being asked: the answer is
// still that the store is in use, which says what to do about it.
func TestAStoreThatAnswersSlowlyIsStillInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, takes := range []time.Duration{0, lockTimeout / 2, 2 * lockTimeout} {
			if err := lockStore(t.Context(), slowStore{takes}, lockTimeout); !errors.Is(err, ErrStoreInUse) {
				t.Errorf("asked for %s: %v", takes, err)
			}
		}
		given, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Millisecond, func() { cancel(nil) })
		if err := lockStore(given, slowStore{time.Hour}, lockTimeout); !errors.Is(err, context.Canceled) {
			t.Errorf("given up by the caller: %v", err)
		}
	})
}
