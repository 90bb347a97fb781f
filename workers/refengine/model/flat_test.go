package model

import "testing"

// flatKV keeps a sequence's blocks one after another: the simplest KV, against
// which package paged is compared.
type flatKV []byte

func (kv flatKV) Run(layer, block int) ([]byte, error) {
	at := (block*(layers-1) + layer) * runBytes
	return kv[at : at+runBytes], nil
}

func (kv flatKV) WritableRun(layer, block int) ([]byte, error) { return kv.Run(layer, block) }

// newState has room for tokens and holds garbage where nothing was written.
func newState(tokens int) *State {
	blocks := (tokens + BlockTokens - 1) / BlockTokens
	s := &State{
		KV:      make(flatKV, blocks*(layers-1)*runBytes),
		Ring:    make([]byte, ringBytes),
		History: make([]byte, HistoryBytes),
	}
	for i := range s.KV.(flatKV) {
		s.KV.(flatKV)[i] = 0xFF
	}
	for i := range s.Ring {
		s.Ring[i] = 0xFF
	}
	ResetHistory(s.History)
	return s
}

func load(t testing.TB) *Model {
	t.Helper()
	m, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// forward feeds tokens in chunks and returns a copy of the last logits.
func forward(t testing.TB, r *Runner, s *State, tokens []int, chunk int) []float32 {
	t.Helper()
	var logits []float32
	for len(tokens) > 0 {
		n := min(chunk, len(tokens))
		out, err := r.Forward(tokens[:n], s, nil)
		if err != nil {
			t.Fatal(err)
		}
		logits, tokens = append([]float32(nil), out...), tokens[n:]
	}
	return logits
}

// prompt is n tokens of text-like bytes after BOS.
func prompt(n int) []int {
	const text = "She had been a friend and companion such as few possessed: intelligent, well-informed, useful. "
	tokens := []int{BOS}
	for i := 0; len(tokens) < n; i++ {
		tokens = append(tokens, int(text[i*i%97%len(text)]), int(text[i%len(text)]))
	}
	return tokens[:n]
}
