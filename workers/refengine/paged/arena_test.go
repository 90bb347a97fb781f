package paged

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
)

func small(t testing.TB, blocks int, poison bool) *Arena {
	t.Helper()
	l := Layout{BlockTokens: 4, Layers: 2, RunBytes: 32, Blocks: blocks, Slots: 3, RingBytes: 48, ItemsBytes: 16}
	a, err := New(l, make([]byte, l.Bytes()), Options{Poison: poison})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func allocate(t testing.TB, a *Arena, n int) []Block {
	t.Helper()
	blocks, err := a.Allocate(n)
	if err != nil {
		t.Fatal(err)
	}
	return blocks
}

func TestRangesTileTheArenaWithoutOverlap(t *testing.T) {
	a := small(t, 5, false)
	l, owner := a.Layout(), make([]int, a.Layout().Bytes())
	cover := func(r Range) {
		for i := r.Offset; i < r.Offset+r.Bytes; i++ {
			owner[i]++
		}
	}
	for b := range Block(l.Blocks) {
		for layer := range l.Layers {
			cover(l.Run(b, layer))
		}
	}
	for s := range Slot(l.Slots) {
		cover(l.Ring(s))
		cover(l.Items(s))
	}
	for i, n := range owner {
		if n != 1 {
			t.Fatalf("byte %d belongs to %d ranges", i, n)
		}
	}
}

func TestImpossibleLayoutsAreRefused(t *testing.T) {
	good := small(t, 1, false).Layout()
	for name, change := range map[string]func(*Layout){
		"no blocks":   func(l *Layout) { l.Blocks = 0 },
		"negative":    func(l *Layout) { l.Layers = -1 },
		"overflowing": func(l *Layout) { l.Blocks, l.RunBytes = 1<<35, 1<<35 },
		"slots large": func(l *Layout) { l.Slots, l.RingBytes = 1<<33, 1<<10 },
	} {
		l := good
		change(&l)
		if _, err := New(l, nil, Options{}); !errors.Is(err, ErrLayout) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(good, make([]byte, good.Bytes()-1), Options{}); !errors.Is(err, ErrLayout) {
		t.Errorf("short memory: %v", err)
	}
}

// Random holders, grants and prefixes against a naive count of references.
func TestBlocksAreConservedWhateverHappens(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 7))
		a := small(t, 24, true)
		holds := map[int][]Block{} // each entry is one hold of each of its blocks
		next := 0
		hold := func(b []Block) { holds[next] = b; next++ }
		pick := func() int { // the lowest key, so that a seed always does the same
			for k := range next {
				if _, ok := holds[k]; ok && rng.IntN(2) == 0 {
					return k
				}
			}
			return -1
		}
		for range 400 {
			tokens := make([]int, 4*(1+rng.IntN(4))+1)
			tokens[0] = rng.IntN(3)
			switch k := pick(); rng.IntN(6) {
			case 0, 1:
				if b, err := a.Allocate(rng.IntN(6)); err == nil {
					hold(b)
				} else if !errors.Is(err, ErrFull) {
					t.Fatal(err)
				}
			case 2:
				if k >= 0 {
					if err := a.Retain(holds[k]); err != nil {
						t.Fatal(err)
					}
					hold(holds[k])
				}
			case 3:
				if k >= 0 {
					if err := a.Insert("salt", tokens, holds[k]); err != nil {
						t.Fatal(err)
					}
				}
			case 4:
				hold(a.Lookup("salt", tokens))
			case 5:
				if k >= 0 {
					if err := a.Release(holds[k]); err != nil {
						t.Fatal(err)
					}
					delete(holds, k)
				}
			}
			conserved(t, a, holds)
		}
	}
}

func conserved(t *testing.T, a *Arena, holds map[int][]Block) {
	t.Helper()
	want := make([]int32, a.layout.Blocks)
	held := 0
	for _, blocks := range holds {
		for _, b := range blocks {
			if want[b]++; want[b] == 1 {
				held++
			}
		}
	}
	for b, n := range a.mu.holders {
		if n != want[b] {
			t.Fatalf("block %d has %d holders, want %d", b, n, want[b])
		}
	}
	c := a.Count()
	if c.Held != held || c.Free+c.Held+c.Cached != c.Blocks {
		t.Fatalf("%d free + %d held (want %d) + %d cached ≠ %d", c.Free, c.Held, held, c.Cached, c.Blocks)
	}
	for _, b := range a.mu.free {
		if want[b] != 0 || !bytes.Equal(a.Bytes(a.layout.Block(b)), bytes.Repeat([]byte{0xFF}, 64)) {
			t.Fatalf("free block %d is held or not scrubbed", b)
		}
	}
}

func TestABlockPassesOnOnlyScrubbed(t *testing.T) {
	for poison, want := range map[bool]byte{false: 0, true: 0xFF} {
		a := small(t, 1, poison)
		b := allocate(t, a, 1)
		copy(a.Bytes(a.Layout().Block(b[0])), "secret")
		if err := a.Retain(b); err != nil { // a peer still reads
			t.Fatal(err)
		}
		if err := a.Release(b); err != nil {
			t.Fatal(err)
		}
		if got := a.Bytes(a.Layout().Block(b[0]))[0]; got != 's' {
			t.Errorf("scrubbed under a reader: %x", got)
		}
		if err := a.Release(b); err != nil {
			t.Fatal(err)
		}
		if got := a.Bytes(a.Layout().Block(allocate(t, a, 1)[0])); !bytes.Equal(got, bytes.Repeat([]byte{want}, 64)) {
			t.Errorf("poison %v: passed on as %x", poison, got)
		}
	}
}

func TestSlotsPassOnOnlyScrubbed(t *testing.T) {
	a := small(t, 1, false)
	s, err := a.AcquireSlot()
	if err != nil {
		t.Fatal(err)
	}
	copy(a.Bytes(a.Layout().Ring(s)), "secret")
	copy(a.Bytes(a.Layout().Items(s)), "secret")
	if err := a.ReleaseSlot(s); err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(a.mem, []byte("s")); n != 0 {
		t.Errorf("%d bytes of the former holder remain", n)
	}
	if err := a.ReleaseSlot(s); !errors.Is(err, ErrNotHeld) {
		t.Errorf("second release: %v", err)
	}
	for range 3 {
		if _, err := a.AcquireSlot(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.AcquireSlot(); !errors.Is(err, ErrFull) {
		t.Errorf("fourth of three slots: %v", err)
	}
}

func TestReleasingWhatIsNotHeldChangesNothing(t *testing.T) {
	a := small(t, 4, false)
	b := allocate(t, a, 2)
	for name, blocks := range map[string][]Block{
		"free":         {b[0], 0, 1, 2, 3},
		"twice":        {b[0], b[1], b[0]},
		"out of range": {b[0], 4},
		"negative":     {b[0], -1},
	} {
		if err := a.Release(blocks); !errors.Is(err, ErrNotHeld) {
			t.Errorf("%s: %v", name, err)
		}
		if c := a.Count(); c.Held != 2 {
			t.Errorf("%s: %d held", name, c.Held)
		}
	}
	if _, err := a.Allocate(3); !errors.Is(err, ErrFull) || a.Count().Free != 2 {
		t.Errorf("all or none: %v, %+v", err, a.Count())
	}
}
