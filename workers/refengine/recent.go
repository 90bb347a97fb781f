package refengine

import "slices"

// recent is a map of bounded size that loses its oldest entries.
type recent[K comparable, V any] struct {
	limit int
	m     map[K]V
	order []K // oldest first; each key once
}

func newRecent[K comparable, V any](limit int) recent[K, V] {
	return recent[K, V]{limit: limit, m: map[K]V{}}
}

func (m *recent[K, V]) get(k K) (V, bool) {
	v, ok := m.m[k]
	return v, ok
}

// put keeps the first value of a key: what is over is over for one reason.
func (m *recent[K, V]) put(k K, v V) {
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

// forget drops one entry. It is rare, so it may look for it.
func (m *recent[K, V]) forget(k K) {
	delete(m.m, k)
	if i := slices.Index(m.order, k); i >= 0 {
		m.order = slices.Delete(m.order, i, i+1)
	}
}

// drop forgets the oldest entries for as long as they are old.
func (m *recent[K, V]) drop(old func(V) bool) {
	for len(m.order) > 0 && old(m.m[m.order[0]]) {
		delete(m.m, m.order[0])
		m.order = m.order[1:]
	}
}
