package placement

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/layout"
	"github.com/surehand/surehand/contracts/rpc"
)

const (
	// maxPlans bounds the pairs of layouts that are remembered.
	maxPlans = 256
	// CopySeconds is what one copy of a reshaping transfer is taken to cost, before
	// a transfer of that pair of layouts was measured.
	CopySeconds = 1e-6
	// copyWeight is that of the newest measurement.
	copyWeight = 0.25

	termReshape = "reshape"
)

// Layouts remembers what became of the pairs of layouts that met. The zero value
// is ready; safe for concurrent use.
type Layouts struct {
	mu    sync.Mutex
	known map[string]planned
}

// planned is how P's layout becomes D's: nil and no error where they are equal.
type planned struct {
	reshard *layout.Reshard
	err     error

	copies   float64 // seconds for each, as measured or assumed
	measured bool
}

// plan says how the state of p becomes that of d, or why it cannot.
func (f Fleet) plan(p, d ledger.Registered) planned {
	if bytes.Equal(p.Layout, d.Layout) {
		return planned{}
	}
	if f.Layouts == nil {
		return between(p, d)
	}
	return f.Layouts.get(p, d)
}

// Scattered takes how long D's daemon took to bring a prompt's pieces into its own
// layout: nothing, where each lies there in one run.
func (l *Layouts) Scattered(p, d ledger.Registered, tokens uint32, took time.Duration) {
	if bytes.Equal(p.Layout, d.Layout) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	known, ok := l.known[pairOf(p, d)]
	if !ok || known.reshard == nil {
		return // forgotten meanwhile: the next one is measured again
	}
	each := took.Seconds() / float64(max(1, known.reshard.Copies(tokens)))
	if known.measured {
		each = known.copies + copyWeight*(each-known.copies)
	}
	known.copies, known.measured = each, true
	l.known[pairOf(p, d)] = known
}

func pairOf(p, d ledger.Registered) string {
	return string(p.Layout) + "\x00" + string(p.Described) + "\x00to\x00" + string(d.Layout) + "\x00" + string(d.Described)
}

func (l *Layouts) get(p, d ledger.Registered) planned {
	key := pairOf(p, d)
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.known[key]; ok {
		return known
	}
	out := between(p, d)
	if l.known == nil || len(l.known) >= maxPlans {
		l.known = map[string]planned{}
	}
	l.known[key] = out
	return out
}

func between(p, d ledger.Registered) planned {
	theirs, err := described(p)
	if err != nil {
		return planned{err: err}
	}
	own, err := described(d)
	if err != nil {
		return planned{err: err}
	}
	reshard, err := layout.Between(theirs, own)
	return planned{reshard: reshard, err: err, copies: CopySeconds}
}

// described reads a registration's layout and refuses one that its fingerprint
// does not name: the daemon would, too, after the prefill.
func described(e ledger.Registered) (layout.Described, error) {
	if len(e.Described) == 0 {
		return layout.Described{}, handoff.Errorf(handoff.CodeMismatch, "layout of %s: it differs and is not described", e.ID)
	}
	d, err := rpc.DecodeLayout(e.Described)
	if err != nil {
		return d, err
	}
	if is := d.Layout.Fingerprint(); !bytes.Equal(is[:], e.Layout) {
		return d, handoff.Errorf(handoff.CodeMismatch, "layout of %s: it names another than it describes", e.ID)
	}
	return d, nil
}

// reshapeTerm is what another layout at D costs; none where they are equal.
func reshapeTerm(r Request, f Fleet, p, d ledger.Registered) (t Term, reshapes bool) {
	plan := f.plan(p, d)
	if plan.reshard == nil {
		return Term{}, false
	}
	return Term{termReshape, plan.copies * float64(plan.reshard.Copies(r.PromptTokens)), true}, true
}

// reshapes says whether the state of this P is made into another layout at D.
func (s Scored) reshapes() bool {
	return slices.ContainsFunc(s.Terms, func(t Term) bool { return t.Name == termReshape })
}
