package ledgertest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
)

// promisesAreConserved steps the ledger and the pure handoff.Capacity through
// the same random operations and wants the same answers and the same sum (S8).
// The model's time is the sum of what the test let pass, so on a store whose
// own clock runs on no lease may end by itself: there every lease is long.
func promisesAreConserved(t *testing.T, w World) {
	const (
		runs, steps = 4, 120
		total       = 40
		attempts    = 24
	)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range runs {
		w.Empty()
		w.built(t, total)
		m := model{t: t, w: w, Capacity: handoff.Capacity{Total: total}, gone: map[handoff.Attempt]handoff.Instant{}}
		for range steps {
			m.step(random, attempt(1+random.IntN(attempts)))
			equal(t, "used", w.used(t), m.Used())
		}
	}
}

type model struct {
	handoff.Capacity
	t    *testing.T
	w    World
	now  handoff.Instant
	gone map[handoff.Attempt]handoff.Instant
}

func (m *model) step(random *rand.Rand, a handoff.Attempt) {
	lease := long
	if m.w.Exact {
		lease = time.Duration(50+random.IntN(500)) * time.Millisecond
	}
	m.Expire(m.now)
	switch random.IntN(10) {
	case 0, 1, 2, 3:
		m.reserve(a, uint32(1+random.IntN(10)), lease)
	case 4, 5, 6:
		m.Release(a)
		m.gone[a] = m.now + ledger.TombstoneTTL
		must(m.t, m.w.Ledger.Release(m.t.Context(), engine, a))
	case 7:
		held := m.Capacity.Renew(m.now, a, lease)
		lost, err := m.w.Ledger.Renew(m.t.Context(), engine, []handoff.Attempt{a}, lease)
		must(m.t, err)
		equal(m.t, "renewed", len(lost) == 0, held)
	case 8:
		td := map[handoff.Attempt]uint32{a: uint32(1 + random.IntN(20))}
		m.Rebuild(m.now, td, lease)
		must(m.t, m.w.Ledger.Rebuild(m.t.Context(), ledger.RebuildRequest{
			Engine: engine, Incarnation: 3, Total: m.Total, Held: td, Lease: lease,
		}))
	case 9:
		if m.w.Exact {
			d := time.Duration(random.IntN(300)) * time.Millisecond
			m.now += d
			m.w.Advance(d)
			m.Expire(m.now)
			must(m.t, m.w.Ledger.Register(m.t.Context(), Seen(engine, 3), long))
		}
	}
}

func (m *model) reserve(a handoff.Attempt, blocks uint32, lease time.Duration) {
	want := handoff.CodeClosed
	if m.gone[a] <= m.now {
		want = handoff.CodeOf(m.Reserve(m.now, a, blocks, lease))
	}
	r := reserveOf(a, blocks)
	r.Lease = lease
	wantCode(m.t, m.w.Ledger.Reserve(m.t.Context(), r), want)
}
