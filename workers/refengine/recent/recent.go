// Package recent keeps what is over for a while, within a bound.
package recent

import "slices"

// Map is a map of bounded size that loses its oldest entries.
type Map[K comparable, V any] struct {
	limit int
	m     map[K]V
	order []K // oldest first; each key once
}

// New holds limit entries at most.
func New[K comparable, V any](limit int) Map[K, V] {
	return Map[K, V]{limit: limit, m: map[K]V{}}
}

// Get finds what is kept of a key.
func (m *Map[K, V]) Get(k K) (V, bool) {
	v, ok := m.m[k]
	return v, ok
}

// Put keeps the first value of a key: what is over is over for one reason.
func (m *Map[K, V]) Put(k K, v V) {
	if _, ok := m.m[k]; ok {
		return
	}
	if len(m.order) == m.limit {
		delete(m.m, m.order[0])
		m.order = m.order[1:]
	}
	m.m[k] = v
	m.order = append(m.order, k)
}

// Forget drops one entry. It is rare, so it may look for it.
func (m *Map[K, V]) Forget(k K) {
	delete(m.m, k)
	if i := slices.Index(m.order, k); i >= 0 {
		m.order = slices.Delete(m.order, i, i+1)
	}
}

// Drop forgets the oldest entries for as long as they are old.
func (m *Map[K, V]) Drop(old func(V) bool) {
	for len(m.order) > 0 && old(m.m[m.order[0]]) {
		delete(m.m, m.order[0])
		m.order = m.order[1:]
	}
}
