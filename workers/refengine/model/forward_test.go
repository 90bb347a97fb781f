package model

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// lengths lie around the boundaries of blocks, chunks and the window.
var lengths = []int{1, 15, 16, 17, 64, 127, 128, 129, 145, 257}

func TestChunkedPrefillEqualsOneTokenAtATimeBitForBit(t *testing.T) {
	m := load(t)
	for _, n := range lengths {
		tokens, want := prompt(n), newState(n)
		logits := forward(t, m.NewRunner(), want, tokens, 1)
		for _, chunk := range []int{7, 16, 64, MaxChunk} {
			t.Run(fmt.Sprintf("length %d chunk %d", n, chunk), func(t *testing.T) {
				got := newState(n)
				if !slices.Equal(forward(t, m.NewRunner(), got, tokens, chunk), logits) {
					t.Error("logits differ")
				}
				if !bytes.Equal(got.KV.(flatKV), want.KV.(flatKV)) {
					t.Error("paged KV differs")
				}
				if !bytes.Equal(got.Ring, want.Ring) {
					t.Error("ring differs")
				}
				if !bytes.Equal(got.History, want.History) || got.Pos != want.Pos {
					t.Error("history or position differs")
				}
			})
		}
	}
}

func TestADirtyRunnerComputesTheSame(t *testing.T) {
	m := load(t)
	r := m.NewRunner()
	want := forward(t, r, newState(40), prompt(40), 16)
	forward(t, r, newState(300), prompt(300), 256) // leaves its rows in the scratch memory
	if got := forward(t, r, newState(40), prompt(40), 16); !slices.Equal(got, want) {
		t.Error("another sequence's scratch changed the logits")
	}
}

func TestReplayLeavesWhatForwardWouldHaveLeft(t *testing.T) {
	m := load(t)
	for _, n := range []int{0, 1, 2, 16, 112, 127, 128, 144, 304} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			tokens := prompt(n + 10)
			whole := newState(n + 10)
			forward(t, m.NewRunner(), whole, tokens[:n], 64)
			replayed := newState(n + 10)
			replayed.KV = slices.Clone(whole.KV.(flatKV))
			for range 2 { // twice gives the same
				if err := m.NewRunner().Replay(tokens[:n], replayed); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(replayed.KV.(flatKV), whole.KV.(flatKV)) {
				t.Fatal("replay wrote to shared KV")
			}
			want := forward(t, m.NewRunner(), whole, tokens[n:], 4)
			if got := forward(t, m.NewRunner(), replayed, tokens[n:], 4); !slices.Equal(got, want) {
				t.Error("logits after replay differ")
			}
		})
	}
}

func TestLayersAreAnnouncedInOrderOnceWritten(t *testing.T) {
	m, s := load(t), newState(32)
	var seen []int
	_, err := m.NewRunner().Forward(prompt(32), s, func(layer int) {
		seen = append(seen, layer)
		for block := range 2 {
			run, _ := s.KV.Run(layer, block)
			if bytes.Contains(run, bytes.Repeat([]byte{0xFF}, kvDim*4)) {
				t.Errorf("layer %d block %d announced with an unwritten row", layer, block)
			}
			if later, _ := s.KV.Run(2, block); layer < 2 && later[0] != 0xFF {
				t.Errorf("layer 2 stands written when layer %d is announced", layer)
			}
		}
	})
	if err != nil || !slices.Equal(seen, []int{0, 1, 2}) {
		t.Errorf("announced %v, %v", seen, err)
	}
}

func TestInputOutOfBoundsIsRefusedUntouched(t *testing.T) {
	m := load(t)
	for name, change := range map[string]func(*State) []int{
		"no token":         func(*State) []int { return nil },
		"chunk too long":   func(*State) []int { return prompt(MaxChunk + 1) },
		"negative token":   func(*State) []int { return []int{-1} },
		"history's None":   func(*State) []int { return []int{None} },
		"position beyond":  func(s *State) []int { s.Pos = MaxPositions; return []int{1} },
		"position before":  func(s *State) []int { s.Pos = -1; return []int{1} },
		"ring too short":   func(s *State) []int { s.Ring = s.Ring[4:]; return []int{1} },
		"history short":    func(s *State) []int { s.History = s.History[2:]; return []int{1} },
		"history no token": func(s *State) []int { s.History[1] = 0xFF; return []int{1} },
	} {
		s := newState(16)
		tokens := change(s)
		before := slices.Clone(s.KV.(flatKV))
		_, err := m.NewRunner().Forward(tokens, s, nil)
		if !errors.Is(err, ErrInput) && !errors.Is(err, ErrState) {
			t.Errorf("%s: %v", name, err)
		}
		if !bytes.Equal(before, s.KV.(flatKV)) {
			t.Errorf("%s: state was written", name)
		}
	}
}

func TestUnwrittenStateGivesNoLogits(t *testing.T) {
	m := load(t)
	for _, item := range []string{"kv", "ring"} {
		s := newState(64)
		forward(t, m.NewRunner(), s, prompt(40), 16)
		if item == "kv" {
			run, _ := s.KV.Run(1, 1)
			copy(run[:4], "\xff\xff\xff\xff")
		} else {
			copy(s.Ring[20*4:], "\xff\xff\xff\xff")
		}
		if _, err := m.NewRunner().Forward([]int{'a'}, s, nil); !errors.Is(err, ErrNotFinite) {
			t.Errorf("%s: %v", item, err)
		}
	}
}

func TestTheRingShowsExactlyTheWindow(t *testing.T) {
	m := load(t)
	const n = 200
	next := func(position int) []float32 { // the logits with K of position changed
		s := newState(n + 1)
		forward(t, m.NewRunner(), s, prompt(n), 64)
		if position >= 0 {
			s.ringRun(position)[position%BlockTokens*kvDim*4+3] ^= 0x80 // a sign
		}
		return forward(t, m.NewRunner(), s, []int{'e'}, 1)
	}
	clean := next(-1)
	if !slices.Equal(next(n-window), clean) {
		t.Error("a position that fell out of the window is read")
	}
	if slices.Equal(next(n-window+1), clean) || slices.Equal(next(n-1), clean) {
		t.Error("a position at an end of the window is not read")
	}
}
