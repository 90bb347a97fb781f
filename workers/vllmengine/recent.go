package vllmengine

// recent is a map of bounded size that loses its oldest entries.
type recent[K comparable, V any] struct {
	limit int
	m     map[K]V
	order []K // oldest first
}

func newRecent[K comparable, V any](limit int) recent[K, V] {
	return recent[K, V]{limit: limit, m: map[K]V{}}
}

// put keeps the first value of a key: what is over is over for one reason.
func (r *recent[K, V]) put(k K, v V) {
	if _, ok := r.m[k]; ok {
		return
	}
	if len(r.order) == r.limit {
		delete(r.m, r.order[0])
		r.order = r.order[1:]
	}
	r.m[k] = v
	r.order = append(r.order, k)
}
