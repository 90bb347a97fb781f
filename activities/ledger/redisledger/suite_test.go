package redisledger

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/surehand/surehand/activities/ledger/ledgertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRedisledgerOnMiniredisPassesTheSuite(t *testing.T) {
	ledgertest.Run(t, func(t *testing.T) ledgertest.World {
		m := miniredis.RunT(t)
		now := time.UnixMilli(1_800_000_000_000)
		m.SetTime(now)
		l, err := Open(Options{URL: "redis://" + m.Addr(), Timeout: patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		h := &faultHook{}
		l.client.AddHook(h)
		return ledgertest.World{
			Ledger: l,
			Advance: func(d time.Duration) {
				now = now.Add(d)
				m.SetTime(now)
				m.FastForward(d)
			},
			Empty: m.FlushAll,
			Next:  h.Next,
			Exact: true,
		}
	})
}

func TestRedisledgerOnARealServerPassesTheSuite(t *testing.T) {
	t.Parallel() // with the other one: both wait
	s := startServer(t)
	ledgertest.Run(t, func(t *testing.T) ledgertest.World { return realWorld(t, s, s.open()) })
}

// A server in cluster mode refuses a script that touches two slots, so one
// server that owns them all is enough to show that no script does.
func TestRedisledgerOnAClusterPassesTheSuite(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--cluster-enabled", "yes")
	s.await(func(c *redis.Client) error {
		if err := c.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
			return err
		}
		return nil
	})
	s.await(func(c *redis.Client) error { return c.Set(t.Context(), "x", "1", time.Second).Err() })
	ledgertest.Run(t, func(t *testing.T) ledgertest.World {
		c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.addr()}, MaxRetries: -1, ReadTimeout: patience})
		t.Cleanup(func() { c.Close() })
		l, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		l.timeout = patience
		return realWorld(t, s, l)
	})
}

func realWorld(t *testing.T, s *server, l *Ledger) ledgertest.World {
	h := &faultHook{}
	l.client.AddHook(h)
	flush := func() {
		s.await(func(c *redis.Client) error { return c.FlushAll(t.Context()).Err() })
	}
	flush()
	return ledgertest.World{
		Ledger: l,
		// The server's clock is its own: time has to pass.
		Advance: func(d time.Duration) { <-time.After(d) },
		Empty:   flush,
		Next:    h.Next,
	}
}
