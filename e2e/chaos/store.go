package chaos

import (
	"context"
	"errors"

	"github.com/surehand/surehand/e2e/fleet"
)

// Faults of what the store holds. Redis gives promises only: whatever becomes of
// them, no unsafe thing happens.
func init() {
	store := []string{fleet.Redis}
	all := func(e Expected) map[string]Expected { return map[string]Expected{"*": e} }
	real := func(s *Stage) error { return s.RealRedis() }
	register(Fault{Name: "emptied", About: "everything that Redis holds is lost at once", Victims: store, Expect: all(promises),
		Inject: func(ctx context.Context, s *Stage, _ string) (Heal, error) { return healed, s.Empty(ctx) }})
	register(Fault{Name: "rewound", About: "Redis fails over to a copy that lacks the last writes", Victims: store, Expect: all(promises), Available: real,
		Prepare: func(ctx context.Context, s *Stage) error { return s.Snapshot(ctx) }, Inject: rewind})
	register(Fault{Name: "full", About: "Redis has no memory left: writes are refused, reads answered", Victims: store, Expect: all(promises), Available: real,
		Inject: configured("maxmemory", "1", "0")})
	register(Fault{Name: "read-only", About: "Redis accepts no writes, as a primary without replicas", Victims: store, Expect: all(promises), Available: real,
		Inject: configured("min-replicas-to-write", "1", "0")})
}

func rewind(ctx context.Context, s *Stage, v string) (Heal, error) {
	return func(context.Context) error { return s.ForgetSnapshot() }, s.Process(v).Restart(ctx)
}

func configured(name, value, was string) func(context.Context, *Stage, string) (Heal, error) {
	return func(ctx context.Context, s *Stage, _ string) (Heal, error) {
		undo := func(ctx context.Context) error { return s.Configure(ctx, name, was) }
		if err := s.Configure(ctx, name, value); err != nil {
			return nil, errors.Join(err, undo(ctx))
		}
		return undo, nil
	}
}
