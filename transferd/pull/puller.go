// Package pull is TD's loop: it reaches the source, asks for pieces as they are
// announced, lands and verifies them, and asks the question of the validated
// read. What may be written, and when, is the fence's to say.
package pull

import (
	"log/slog"
	"sync"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/fence"
	"github.com/surehand/surehand/transferd/transport"
	"github.com/surehand/surehand/transferd/transport/rail"
)

const (
	// WindowBytes bounds, for each stream, what is asked for and not here: what may
	// still come after a cancel (L6).
	WindowBytes = 4 << 20
	// MaxRepulls is how often a piece whose bytes differ is read again.
	MaxRepulls = 1

	batchBytes = 2 << 20                // of one request
	backoffMax = 100 * time.Millisecond // between two connections
)

// Config of a puller.
type Config struct {
	Core             *fence.Core
	Transports       []transport.Transport // the best first
	Unchecked        bool                  // pulls may do without checksums
	Reread           bool                  // D's memory is read once more before it is verified
	ProgressDeadline time.Duration         // default of a pull; zero: handoff.ProgressDeadline
	Log              *slog.Logger
}

// Spec is one pull.
type Spec struct {
	Plan             handoff.Plan
	Token            handoff.Token
	SourceAddress    string // its rails: addresses, by commas, the preferred first
	Capability       []byte
	ProgressDeadline time.Duration
	Require          string // the only transport that may be used; empty: any
	Unchecked        bool   // no checksums; denied unless the daemon allows it
	Trace            string // traceparent of who asked first; empty: none
}

// Puller runs pulls: one per target, however often it is asked for.
type Puller struct {
	cfg     Config
	rails   rail.Book
	plans   plans
	credits credits
	slots   sync.Pool // of *slot

	mu      sync.Mutex
	running map[handoff.Attempt]*Run
	wg      sync.WaitGroup
}

// New makes a puller.
func New(cfg Config) *Puller {
	if cfg.ProgressDeadline == 0 {
		cfg.ProgressDeadline = handoff.ProgressDeadline
	}
	return &Puller{cfg: cfg, running: map[handoff.Attempt]*Run{}, slots: sync.Pool{New: func() any { return new(slot) }}}
}

// Pull starts the pull of a target, joins the one that runs, or gives the result
// of the one that ended well. It does not end with its caller: a worker that
// asks again joins it. What ends it is its target's end.
func (p *Puller) Pull(s Spec) (*Run, error) {
	if s.Unchecked && !p.cfg.Unchecked {
		return nil, p.cfg.Core.RefusePull(s.Plan.Attempt, handoff.Errorf(handoff.CodeDenied, "this daemon allows no pull without checksums"))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.running[s.Plan.Attempt]; r != nil && !r.isDone() { // a done one only lingers on its connection
		if r.spec.Plan != s.Plan {
			return nil, p.cfg.Core.RefusePull(s.Plan.Attempt, handoff.Errorf(handoff.CodeConflict, "this attempt has another plan"))
		}
		if r.spec.Token != s.Token {
			return nil, p.cfg.Core.RefusePull(s.Plan.Attempt, handoff.Errorf(handoff.CodeStaleToken, "%s", s.Token))
		}
		return r, nil
	}
	landing, pulled, err := p.cfg.Core.Land(s.Plan, s.Token)
	if err != nil {
		return nil, err
	}
	if s.ProgressDeadline <= 0 {
		s.ProgressDeadline = p.cfg.ProgressDeadline
	}
	r := &Run{puller: p, spec: s, landing: landing, done: make(chan struct{})}
	if pulled != nil {
		r.result = *pulled
		close(r.done)
		return r, nil
	}
	p.running[s.Plan.Attempt] = r
	p.wg.Go(func() {
		newLoop(r).start()
		p.mu.Lock()
		if p.running[s.Plan.Attempt] == r {
			delete(p.running, s.Plan.Attempt)
		}
		p.mu.Unlock()
	})
	return r, nil
}

// Wait returns when no pull runs; fence.Core.Stop ends them.
func (p *Puller) Wait() { p.wg.Wait() }

// Running is how many pulls run, or give their connection back.
func (p *Puller) Running() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.running)
}

// transport chooses how the bytes come: the best that reaches the source, or the
// one that is required, never a slower one in its stead.
func (p *Puller) transport(s Spec, t transport.Target) (transport.Transport, error) {
	why := handoff.Errorf(handoff.CodeMismatch, "this daemon offers no %s", s.Require)
	for _, o := range p.cfg.Transports {
		if s.Require != "" && o.Name() != s.Require {
			continue
		}
		err := o.Reaches(t)
		if err == nil {
			return o, nil
		}
		why = handoff.Errorf(handoff.CodeMismatch, "%s does not reach the source: %s", o.Name(), err)
	}
	return nil, why
}

// Run is one pull that runs or ended.
type Run struct {
	puller  *Puller
	spec    Spec
	landing *fence.Landing
	done    chan struct{}
	result  fence.Pulled // valid once done
	err     error
}

// Done is closed when the pull ended.
func (r *Run) Done() <-chan struct{} { return r.done }

func (r *Run) isDone() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// Result is what the pull did; only after Done. The target is validated when
// there is no error.
func (r *Run) Result() (fence.Pulled, error) { return r.result, r.err }

// Progress is how far a running pull is.
func (r *Run) Progress() fence.Progress {
	if r.landing == nil {
		return fence.Progress{}
	}
	return r.landing.Progress()
}
