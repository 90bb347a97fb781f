package memledger

import (
	"github.com/surehand/surehand/contracts/handoff"
)

// expiring is a bounded map whose entries end. It sweeps when it is full, so an
// ended entry costs memory but is never seen.
type expiring[K comparable, V any] struct {
	max     int
	entries map[K]entry[V]
}

type entry[V any] struct {
	value V
	end   handoff.Instant
}

func (m *expiring[K, V]) get(now handoff.Instant, k K) (V, bool) {
	e, ok := m.entries[k]
	if !ok || e.end <= now {
		var none V
		return none, false
	}
	return e.value, true
}

// put refuses a new key when the map is full of entries that have not ended.
func (m *expiring[K, V]) put(now handoff.Instant, k K, v V, end handoff.Instant) error {
	if _, ok := m.entries[k]; !ok && len(m.entries) >= m.max {
		for k, e := range m.entries {
			if e.end <= now {
				delete(m.entries, k)
			}
		}
		if len(m.entries) >= m.max {
			return handoff.Errorf(handoff.CodeCapacity, "ledger holds its limit of %d", m.max)
		}
	}
	if m.entries == nil {
		m.entries = map[K]entry[V]{}
	}
	m.entries[k] = entry[V]{v, end}
	return nil
}

func (m *expiring[K, V]) drop(k K) { delete(m.entries, k) }

// endOf is when k's entry ends; zero for one that is not there.
func (m *expiring[K, V]) endOf(k K) handoff.Instant { return m.entries[k].end }
