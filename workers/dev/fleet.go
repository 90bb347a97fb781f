package dev

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	readyTimeout = 60 * time.Second
	backoffFirst = 100 * time.Millisecond
	backoffMost  = 5 * time.Second
	steadyAfter  = 10 * time.Second // of life: then the backoff begins anew
)

// Change is something that happened to a child.
type Change struct {
	Event string `json:"event"` // started, restarted, ended, failed
	Name  string `json:"name"`
	PID   int    `json:"pid,omitempty"`
	// Detail is for people.
	Detail string `json:"detail,omitempty"`
}

// fleet keeps every child of its specs alive until it is stopped.
type fleet struct {
	spawn  *spawner
	logs   string
	tell   func(Change) // must not block
	member map[string]*member
	wg     sync.WaitGroup
	ctx    context.Context // ended by stop: no restarts after
	cancel context.CancelFunc
	broken chan error // the first child that never came up
}

// member is one child through all its lives.
type member struct {
	spec  Spec
	first chan struct{} // closed when it was ready for the first time
	mu    sync.Mutex
	run   *run
}

// newFleet starts nothing yet.
func newFleet(specs []Spec, logs string, tell func(Change)) (*fleet, error) {
	f := &fleet{logs: logs, tell: tell, member: map[string]*member{}, broken: make(chan error, len(specs))}
	for _, s := range specs {
		if f.member[s.Name] != nil {
			return nil, fmt.Errorf("two children are named %s", s.Name)
		}
		f.member[s.Name] = &member{spec: s, first: make(chan struct{})}
	}
	for _, s := range specs {
		for _, need := range s.Needs {
			if f.member[need] == nil {
				return nil, fmt.Errorf("%s needs %s, which is nobody", s.Name, need)
			}
		}
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.spawn = newSpawner()
	return f, nil
}

// start begins every child and waits until all are ready; the first that fails
// ends the wait with its log's tail.
func (f *fleet) start(ctx context.Context) error {
	for _, m := range f.member {
		f.wg.Go(func() { f.keep(m) })
	}
	for _, m := range f.member {
		select {
		case <-m.first:
		case err := <-f.broken:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// keep runs one child until the fleet stops.
func (f *fleet) keep(m *member) {
	for _, need := range m.spec.Needs {
		select {
		case <-f.member[need].first:
		case <-f.ctx.Done():
			return
		}
	}
	wait := backoffFirst
	for life := 0; f.ctx.Err() == nil; life++ {
		born := time.Now()
		r, err := f.live(m, life)
		if f.ctx.Err() != nil {
			return
		}
		if !m.was() {
			f.broken <- f.failure(m, r, err)
			return
		}
		if time.Since(born) > steadyAfter {
			wait = backoffFirst
		}
		f.tell(Change{Event: "ended", Name: m.spec.Name, Detail: fmt.Sprintf("%s; again in %s", how(r, err), wait)})
		select {
		case <-time.After(wait):
		case <-f.ctx.Done():
			return
		}
		wait = min(2*wait, backoffMost)
	}
}

// live is one life, from the start to the end; it gives the run if there was one.
func (f *fleet) live(m *member, life int) (*run, error) {
	m.mu.Lock()
	if f.ctx.Err() != nil { // looked at under the lock that stop takes
		m.mu.Unlock()
		return nil, f.ctx.Err()
	}
	r, err := begin(f.spawn, m.spec, f.logs)
	m.run = r
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	within := cmp.Or(m.spec.Within, readyTimeout)
	slow := time.NewTimer(within)
	defer slow.Stop()
	select {
	case <-r.ready:
		event := "restarted"
		if life == 0 {
			event = "started"
			close(m.first)
		}
		f.tell(Change{Event: event, Name: m.spec.Name, PID: r.pid()})
		<-r.done
		return r, r.err
	case <-r.done:
		return r, cmp.Or(r.err, errors.New("it ended before it was ready"))
	case <-slow.C:
		killed := r.send(syscall.SIGKILL)
		<-r.done
		return r, errors.Join(fmt.Errorf("not ready within %s", within), killed)
	}
}

// was says whether the child was ever ready.
func (m *member) was() bool {
	select {
	case <-m.first:
		return true
	default:
		return false
	}
}

func how(r *run, err error) string {
	if r != nil && r.cmd.ProcessState != nil {
		return r.cmd.ProcessState.String()
	}
	return fmt.Sprint(err)
}

func (f *fleet) failure(m *member, r *run, err error) error {
	if r == nil {
		return err
	}
	return fmt.Errorf("%s did not start: %w\n%s", m.spec.Name, err, indent(m.spec.Name, r.tail(f.logs)))
}

// pids of the children that live now.
func (f *fleet) pids() map[string]int {
	out := map[string]int{}
	for name, m := range f.member {
		m.mu.Lock()
		if m.run != nil {
			out[name] = m.run.pid()
		}
		m.mu.Unlock()
	}
	return out
}

// stop ends the children rank by rank. When ctx ends, all that is left is killed.
func (f *fleet) stop(ctx context.Context) error {
	f.cancel()
	ranks := map[int][]*member{}
	for _, m := range f.member {
		ranks[m.spec.Rank] = append(ranks[m.spec.Rank], m)
	}
	order := make([]int, 0, len(ranks))
	for rank := range ranks {
		order = append(order, rank)
	}
	slices.Sort(order)
	var mu sync.Mutex
	var failed []error
	for _, rank := range order {
		var together sync.WaitGroup
		for _, m := range ranks[rank] {
			m.mu.Lock()
			r := m.run
			m.mu.Unlock()
			if r == nil {
				continue
			}
			together.Go(func() {
				err := r.stop(ctx)
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, err)
			})
		}
		together.Wait()
	}
	f.wg.Wait()
	f.spawn.close()
	return errors.Join(failed...)
}
