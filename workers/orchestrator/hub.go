package orchestrator

import (
	"slices"
	"sync"
	"sync/atomic"
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

// hub holds the streams of this process.
type hub struct {
	mu    sync.Mutex
	byID  map[string]*stream            // tenant/id
	byRun map[handoff.HandoffID]*stream // the protocol's name of the run, of streams read here
	open  atomic.Int64
	limit int
	keep  time.Duration // of an ended stream; no longer than its key's window
	over  func(*stream, string)
}

func newHub(limit int, window time.Duration, over func(*stream, string)) *hub {
	return &hub{byID: map[string]*stream{}, byRun: map[handoff.HandoffID]*stream{}, limit: limit, keep: min(keepEnded, window), over: over}
}

func streamKey(tenant, id string) string { return tenant + "/" + id }

// join follows the stream of an id, or makes it; made says that the caller owns
// it now and must run it. Refused for another body, s is the stream that is in
// the way where it is not known yet whether that holds the key.
func (h *hub) join(tenant, id string, body handoff.Digest) (f Follower, s *stream, made bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := streamKey(tenant, id)
	if s := h.byID[k]; s != nil && !refusedBeforeCommit(s) && !s.isForgone() {
		if s.body != body {
			if s.isOver() || s.roleNow() != roleNone {
				s = nil
			}
			return nil, s, false, handoff.Errorf(handoff.CodeKeyReused, "the idempotency key was used with another body")
		}
		return s.follow(true), s, false, nil
	}
	if n := h.open.Load(); n >= int64(h.limit) {
		return nil, nil, false, handoff.Errorf(handoff.CodeCapacity, "%d handoffs are under way, limit %d", n, h.limit)
	}
	s = newStream(tenant, id, body, &h.open, h.over)
	h.byID[k] = s // a refused one stays under its run for a while, for its workflow's questions
	return s.follow(false), s, true, nil
}

// refusedBeforeCommit: such an outcome does not stick, the key may run again (S13).
func refusedBeforeCommit(s *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done && s.tokens == 0 && s.events[len(s.events)-1].Err != nil
}

func (h *hub) named(r handoff.HandoffID, s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.byRun[r] = s
}

// unnamed takes back what named said: another process reads the run.
func (h *hub) unnamed(r handoff.HandoffID, s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byRun[r] == s {
		delete(h.byRun, r)
	}
}

// forget drops what a stream told that is over, that nobody follows and that
// nobody can ask for again. Its end stays under its run, for its workflow's questions.
func (h *hub) forget(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.done || s.followers > 0 {
		return
	}
	if k := streamKey(s.tenant, s.id); h.byID[k] == s {
		delete(h.byID, k)
	}
	s.events = []Event{s.events[len(s.events)-1]}
	s.events[0].Text = ""
	s.shown, s.bytes = 1, 0
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
	for s := range h.all() {
		if !s.isOver() {
			out = append(out, s)
		}
	}
	return out
}

// all is every stream held here. Callers hold the lock.
func (h *hub) all() map[*stream]bool {
	out := make(map[*stream]bool, len(h.byID))
	for _, s := range h.byID {
		out[s] = true
	}
	for _, s := range h.byRun {
		out[s] = true
	}
	return out
}

// sweep drops streams that ended long enough ago, and the oldest over the limits.
func (h *hub) sweep(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	type ended struct {
		s     *stream
		at    time.Time
		bytes int
	}
	var rest []ended
	for s := range h.all() {
		s.mu.Lock()
		if s.done && s.followers == 0 {
			rest = append(rest, ended{s, s.ended, s.bytes})
		}
		s.mu.Unlock()
	}
	slices.SortFunc(rest, func(a, b ended) int { return b.at.Compare(a.at) })
	drop, size := map[*stream]bool{}, 0
	for i, e := range rest {
		size += e.bytes
		drop[e.s] = now.Sub(e.at) > h.keep || i >= keepEndedCount || size > keepEndedBytes
	}
	for k, s := range h.byID {
		if drop[s] {
			delete(h.byID, k)
		}
	}
	for r, s := range h.byRun {
		if drop[s] {
			delete(h.byRun, r)
		}
	}
}
