package model

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Sampler draws tokens from logits. Its state is an item of the handoff: saved
// after the first token at P and restored at D, the draws go on as one run.
type Sampler struct {
	temperature, topP float32
	pcg               *rand.PCG
	order             []choice
}

type choice struct {
	token  int
	weight float32
}

const maxTemperature = 10

// pcgPrefix is what math/rand/v2 puts before the 16 bytes of a PCG's state.
var pcgPrefix = []byte("pcg:")

// NewSampler draws greedily at temperature 0, else from the smallest set of
// tokens whose probability reaches topP, with the generator seeded by seed.
func NewSampler(temperature, topP float32, seed uint64) (*Sampler, error) {
	if !(temperature >= 0 && temperature <= maxTemperature && topP > 0 && topP <= 1) {
		return nil, fmt.Errorf("%w: temperature or top_p", ErrInput)
	}
	return &Sampler{temperature: temperature, topP: topP, pcg: rand.NewPCG(seed, seed)}, nil
}

// Skip passes over the numbers of n tokens that were drawn before: the state
// after them is a function of the seed and their count alone.
func (s *Sampler) Skip(n int) {
	if s.temperature == 0 {
		return // greedy takes no number
	}
	for range n {
		s.pcg.Uint64()
	}
}

// Save writes the state into the sampler item: temperature and top_p as
// little-endian float32, then the generator.
func (s *Sampler) Save(item []byte) error {
	state, err := s.pcg.MarshalBinary()
	if err != nil || len(item) != SamplerBytes || len(state) != len(pcgPrefix)+SamplerBytes-8 {
		return fmt.Errorf("%w: sampler item of %d bytes", ErrState, len(item))
	}
	binary.LittleEndian.PutUint32(item, math.Float32bits(s.temperature))
	binary.LittleEndian.PutUint32(item[4:], math.Float32bits(s.topP))
	copy(item[8:], state[len(pcgPrefix):])
	return nil
}

// RestoreSampler reads a saved state and refuses one that Save cannot write.
func RestoreSampler(item []byte) (*Sampler, error) {
	if len(item) != SamplerBytes {
		return nil, fmt.Errorf("%w: sampler item of %d bytes", ErrState, len(item))
	}
	temperature := math.Float32frombits(binary.LittleEndian.Uint32(item))
	topP := math.Float32frombits(binary.LittleEndian.Uint32(item[4:]))
	s, err := NewSampler(temperature, topP, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: sampler", ErrState)
	}
	if err := s.pcg.UnmarshalBinary(slices.Concat(pcgPrefix, item[8:])); err != nil {
		return nil, fmt.Errorf("%w: sampler generator", ErrState)
	}
	return s, nil
}

// Sample draws a byte or EOS; the other specials are never answers. A draw
// takes one number from the generator, greedy takes none. Logits that are not
// finite give ErrNotFinite and no token.
func (s *Sampler) Sample(logits []float32) (int, error) {
	if len(logits) != vocab {
		return 0, fmt.Errorf("%w: %d logits", ErrInput, len(logits))
	}
	if !finite(logits) {
		return 0, ErrNotFinite
	}
	return s.Draw(logits[:EOS+1])
}

// least is how likely a token must be, beside the most likely one, to be drawn
// at all: a draw has 24 bits. It keeps a large vocabulary from being sorted whole.
const least = 1.0 / (1 << 24)

// Draw is Sample for any vocabulary, all of which may be drawn.
func (s *Sampler) Draw(logits []float32) (int, error) {
	if len(logits) == 0 || !finite(logits) {
		return 0, ErrNotFinite
	}
	best := 0
	for token, v := range logits {
		if v > logits[best] {
			best = token
		}
	}
	if s.temperature == 0 {
		return best, nil
	}
	s.order = s.order[:0]
	var total float32
	for token, v := range logits {
		w := exp(float32(v-logits[best]) / s.temperature)
		if w < least {
			continue
		}
		s.order = append(s.order, choice{token, w})
		total += w
	}
	slices.SortFunc(s.order, func(a, b choice) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.token, b.token))
	})
	return s.draw(total * s.topP), nil
}

// draw picks from order, most likely first, cut off once mass is covered.
func (s *Sampler) draw(mass float32) int {
	covered, kept := float32(0), 0
	for covered < mass && kept < len(s.order) {
		covered += s.order[kept].weight
		kept++
	}
	at := float32(s.pcg.Uint64()>>40) / (1 << 24) * covered // 24 bits: exact in float32
	for _, c := range s.order[:kept] {
		if at -= c.weight; at < 0 {
			return c.token
		}
	}
	return s.order[0].token
}
