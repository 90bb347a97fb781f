// Package memcheck keeps bodies in the memory of one process: for tests, and as
// the model that redischeck is compared with.
package memcheck

import (
	"context"
	"sync"
	"time"

	"github.com/surehand/surehand/activities"
	"github.com/surehand/surehand/activities/claimcheck"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// MaxBodies bounds the store.
const MaxBodies = 4096

// Store is a claimcheck.Store in memory.
type Store struct {
	now func() time.Duration

	mu     sync.Mutex
	bodies map[name]body
}

type name struct {
	tenant string
	run    handoff.HandoffID
}

type body struct {
	raw []byte
	end time.Duration
}

var _ claimcheck.Store = (*Store)(nil)

// New makes an empty store. A nil clock is the process's monotonic one.
func New(clock func() time.Duration) *Store {
	if clock == nil {
		start := time.Now()
		clock = func() time.Duration { return time.Since(start) }
	}
	return &Store{now: clock, bodies: map[name]body{}}
}

// Put implements claimcheck.Store.
func (s *Store) Put(_ context.Context, in steps.Input, b activities.Body) error {
	h := in.Plan.Attempt.Handoff
	if err := claimcheck.Validate(in.Tenant, h); err != nil {
		return err
	}
	raw, err := claimcheck.Marshal(b)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for n, b := range s.bodies {
		if b.end <= now {
			delete(s.bodies, n)
		}
	}
	if len(s.bodies) >= MaxBodies {
		return handoff.Errorf(handoff.CodeCapacity, "%d bodies are kept", len(s.bodies))
	}
	s.bodies[name{in.Tenant, h}] = body{raw, now + claimcheck.TTL(in)}
	return nil
}

// Body implements activities.Bodies.
func (s *Store) Body(_ context.Context, tenant string, h handoff.HandoffID) (activities.Body, error) {
	if err := claimcheck.Validate(tenant, h); err != nil {
		return activities.Body{}, err
	}
	s.mu.Lock()
	b, ok := s.bodies[name{tenant, h}]
	now := s.now()
	s.mu.Unlock()
	if !ok || b.end <= now {
		return activities.Body{}, claimcheck.Gone(h)
	}
	return claimcheck.Unmarshal(b.raw)
}

// Drop implements claimcheck.Store.
func (s *Store) Drop(_ context.Context, tenant string, h handoff.HandoffID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.bodies, name{tenant, h})
	return claimcheck.Validate(tenant, h)
}
