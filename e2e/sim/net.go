package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
)

// life is one life of a process. What it does ends with it.
type life struct {
	name        string
	incarnation handoff.Incarnation
	ctx         context.Context
	end         context.CancelFunc
}

func (l *life) dead() bool { return l.ctx.Err() != nil }

// message is one thing under way; an ask and its answer are two. Where it goes
// is decided by the scheduler alone.
type message struct {
	point    string // op:ask, op:answer
	from, to string
	attempt  handoff.Attempt
	seq      int
	local    bool // a socket on one host: held or cut by death only, never lost
	due      time.Time
	fate     chan fate
	damage   func() // flips a byte of what it carries; nil: it carries none
	decided  fate   // by a strike
}

type fate uint8

const (
	arrives fate = iota
	lost
	twice
)

func (m *message) String() string {
	return fmt.Sprintf("%s>%s %s e%d", m.from, m.to, m.point, m.attempt.Epoch)
}

func (m *message) before(o *message) int {
	return cmp.Or(cmp.Compare(m.from, o.from), cmp.Compare(m.to, o.to), cmp.Compare(m.point, o.point),
		cmp.Compare(m.attempt.Epoch, o.attempt.Epoch), cmp.Compare(m.seq, o.seq))
}

// brokenAfter is when a lost message shows to its sender, as a broken connection.
const brokenAfter = 100 * time.Millisecond

// post puts a message into the net and waits for its fate.
func (s *Sim) post(m *message) fate {
	m.fate = make(chan fate, 1)
	s.mu.Lock()
	s.seq++
	m.seq = s.seq
	if s.closed {
		s.mu.Unlock()
		return lost
	}
	if strings.HasPrefix(m.point, "lane-") {
		m.due = time.Now().Add(s.slow)
	}
	s.under = append(s.under, m)
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
	return <-m.fate
}

// call is one operation asked of another process: fn runs there. An error of the
// net is CodeUnavailable, which proves nothing (rule 23).
func (s *Sim) call(ctx context.Context, from *life, to, op string, a handoff.Attempt, fn func(context.Context) error) error {
	return s.ask(ctx, from, to, op, a, false, nil, fn)
}

// fetch is a call with an answer, which comes or does not: an asker that left
// shares nothing with what still runs for it.
func fetch[T any](ctx context.Context, s *Sim, from *life, to, op string, a handoff.Attempt, fn func(context.Context) (T, error)) (out T, err error) {
	got := make(chan T, 2) // twice at most
	err = s.call(ctx, from, to, op, a, func(ctx context.Context) error {
		v, err := fn(ctx)
		got <- v
		return err
	})
	select {
	case out = <-got:
	default:
	}
	return out, err
}

// beside is a call between an engine and the daemon on its own host.
func (s *Sim) beside(ctx context.Context, from *life, to, op string, a handoff.Attempt, fn func(context.Context) error) error {
	return s.ask(ctx, from, to, op, a, true, nil, fn)
}

func (s *Sim) ask(ctx context.Context, from *life, to, op string, a handoff.Attempt, local bool, damage func(), fn func(context.Context) error) error {
	if from.dead() || ctx.Err() != nil {
		return unavailable("%s does not ask any more", from.name)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(from.ctx, cancel)()
	done := make(chan error, 2)
	go s.carry(ctx, from, to, op, a, local, damage, fn, done)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return unavailable("%s: the asker stopped waiting", op)
	}
}

func (s *Sim) carry(ctx context.Context, from *life, to, op string, a handoff.Attempt, local bool, damage func(), fn func(context.Context) error, done chan error) {
	broken := func() {
		time.Sleep(brokenAfter)
		done <- unavailable("%s: the connection broke", op)
	}
	ask := s.post(&message{point: op + ":ask", from: from.name, to: to, attempt: a, local: local})
	if ask == lost {
		broken()
		return
	}
	at := s.lifeOf(to)
	if at == nil {
		done <- unavailable("%s: nobody listens at %s", op, to)
		return
	}
	served, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(at.ctx, cancel)()
	err := fn(served)
	if ask == twice { // delivered again: no second effect may follow
		err = fn(served)
	}
	if at.dead() {
		broken()
		return
	}
	if s.post(&message{point: op + ":answer", from: to, to: from.name, attempt: a, local: local, damage: damage}) == lost {
		broken()
		return
	}
	done <- err
}

func unavailable(format string, args ...any) error {
	return handoff.Errorf(handoff.CodeUnavailable, format, args...)
}

// deliverable lists what may arrive now, in an order that is the same for one seed.
func (s *Sim) deliverable(now time.Time) (ms []*message, next time.Time) {
	for _, m := range s.under {
		due := m.due
		for _, p := range []string{m.from, m.to} {
			if until := s.held[p]; until.After(due) {
				due = until
			}
		}
		if until := s.cut[m.from+">"+m.to]; until.After(due) {
			due = until
		}
		if due.After(now) {
			if next.IsZero() || due.Before(next) {
				next = due
			}
			continue
		}
		ms = append(ms, m)
	}
	slices.SortFunc(ms, (*message).before)
	return ms, next
}
