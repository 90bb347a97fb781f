package native

import (
	"time"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/activities/engine/vllm"
)

// window is how many requests one D is given at once where it does not tell:
// doubled while a full window begins to decode and nothing waits, cut to what D runs when it
// refuses for want of room, and tried one higher again after a while. A D that
// tells its blocks and has never refused has none. Guarded by its seat.
type window struct {
	size    int // 0: unbounded
	refused bool
	moved   time.Time
}

const windowFirst = 1

// limit is how many requests D takes at once, 0 when that is not known.
func (s *seat) limit() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	size, fixed := s.window.size, s.f.config.Concurrency
	if size == 0 && (s.sample.Blocks == 0 || s.sample.BlockTokens == 0) {
		size = windowFirst
	}
	if fixed > 0 && (size == 0 || !s.window.refused || size > fixed) {
		return fixed
	}
	return size
}

// began hears that D gave a first token while open requests were at it.
func (s *seat) began(open int) {
	s.mu.Lock()
	w := &s.window
	told := s.sample.Blocks > 0 && s.sample.BlockTokens > 0
	switch {
	case w.size == 0 && told || open < max(w.size, windowFirst):
	case queued(s.sample): // it has more than it can begin
	case !w.refused:
		w.size, w.moved = 2*max(w.size, windowFirst), time.Now()
	case time.Since(w.moved) > learnedFor:
		w.size, w.moved = w.size+1, time.Now()
	}
	s.mu.Unlock()
	s.f.gate.moved()
}

// full hears that D refused for want of room while running requests were at it.
func (s *seat) full(running int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.window = window{size: max(1, running), refused: true, moved: time.Now()}
}

// limitOf sums the limits of the D of a model that serve; 0: unbounded.
func (f *Fleet) limitOf(model string) (n int) {
	for _, s := range f.seats {
		_, facts, up := s.known()
		if !s.role.Has(engine.RoleDecode) || !up || facts.Model != model {
			continue
		}
		limit := s.limit()
		if limit == 0 {
			return 0
		}
		n += limit
	}
	if n == 0 {
		return windowFirst // nobody serves: let one through, to be told so
	}
	return n
}

func queued(v vllm.Sample) bool {
	n, ok := v.Value(vllm.MetricWaiting)
	return ok && n > 0
}
