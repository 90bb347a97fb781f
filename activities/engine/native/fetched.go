package native

import "github.com/surehand/surehand/activities/engine/vllm"

// lives names two processes by the start times that their metrics tell; an engine
// that tells none has one life only.
type lives struct{ p, d float64 }

func (s *seat) life() float64 {
	sample, _, _ := s.known()
	started, _ := sample.Value(vllm.MetricStart)
	return started
}

// fetched notes that this D has fetched from a P, in the lives that they have now.
func (s *seat) fetched(p *seat) {
	now := lives{p.life(), s.life()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.from == nil {
		s.from = map[*seat]lives{}
	}
	s.from[p] = now
}

// hasFetched says whether it has: only then a request that it rejects reaches that P.
func (s *seat) hasFetched(p *seat) bool {
	now := lives{p.life(), s.life()}
	s.mu.Lock()
	defer s.mu.Unlock()
	was, ok := s.from[p]
	return ok && was == now
}
