package orchestrator

import (
	"sync"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
)

// Limits of the streams kept after their end, so that a repeat of the same key
// gets the same stream for a while (S13, S17).
const (
	keepEnded      = 2 * time.Minute
	keepEndedCount = 4096
	keepEndedBytes = 64 << 20
)

// hub holds the streams that this process reads.
type hub struct {
	mu    sync.Mutex
	byID  map[string]*stream            // tenant/id
	byRun map[handoff.HandoffID]*stream // the protocol's name of the run
	limit int
}

func newHub(limit int) *hub {
	return &hub{byID: map[string]*stream{}, byRun: map[handoff.HandoffID]*stream{}, limit: limit}
}

func streamKey(tenant, id string) string { return tenant + "/" + id }

// join follows the stream of an id, or makes it; made says that the caller owns
// it now and must run it.
func (h *hub) join(tenant, id string, body handoff.Digest) (f Follower, s *stream, made bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := streamKey(tenant, id)
	if s := h.byID[k]; s != nil && !refusedBeforeCommit(s) {
		if s.body != body {
			return nil, nil, false, handoff.Errorf(handoff.CodeKeyReused, "the idempotency key was used with another body")
		}
		return s.follow(true), s, false, nil
	}
	live := 0
	for _, s := range h.byID {
		if !s.over() {
			live++
		}
		if live >= h.limit {
			return nil, nil, false, handoff.Errorf(handoff.CodeCapacity, "%d handoffs are under way, limit %d", live, h.limit)
		}
	}
	s = newStream(tenant, id, body)
	h.byID[k] = s
	return s.follow(false), s, true, nil
}

// refusedBeforeCommit: such an outcome does not stick, the key may run again (S13).
func refusedBeforeCommit(s *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done && s.tokens == 0 && len(s.events) > 0 && s.events[len(s.events)-1].Err != nil
}

func (h *hub) named(r handoff.HandoffID, s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.byRun[r] = s
}

func (h *hub) run(r handoff.HandoffID) *stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byRun[r]
}

func (h *hub) find(tenant, id string) *stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byID[streamKey(tenant, id)]
}

// live lists the streams that are not over.
func (h *hub) live() []*stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []*stream
	for _, s := range h.byID {
		if !s.over() {
			out = append(out, s)
		}
	}
	return out
}

// sweep drops streams that ended long enough ago, or the oldest over the limits.
func (h *hub) sweep(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	count, size := 0, 0
	for k, s := range h.byID {
		s.mu.Lock()
		drop := s.done && s.followers == 0 && (now.Sub(s.ended) > keepEnded || count >= keepEndedCount || size >= keepEndedBytes)
		if s.done && !drop {
			count++
			size += s.bytes
		}
		run := s.in.Plan.Attempt.Handoff
		s.mu.Unlock()
		if drop {
			delete(h.byID, k)
			if h.byRun[run] == s {
				delete(h.byRun, run)
			}
		}
	}
}
