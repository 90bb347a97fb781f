package segment

import (
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/internal/native"
)

const size = 64 << 10

var shape = handoff.Shape{Revision: "m", Layout: handoff.Digest{1}, Tokens: 1,
	Groups: []handoff.Group{{Name: "g", Layers: 1, Blocks: 2, BlockBytes: 4096}}, Items: []handoff.Item{{Class: "i", Bytes: 10}}}

func TestEveryExtentLiesInsideTheSegment(t *testing.T) {
	f, err := native.Memfd("m", size)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := Map(f, size+1); handoff.CodeOf(err) != handoff.CodeInvalid {
		t.Fatal(err)
	}
	s, err := Map(f, size)
	if err != nil {
		t.Fatal(err)
	}
	extents, err := s.Extents(shape, []uint64{size - 4096, 0, size - 10})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{4096, 4096, 10} {
		view := s.View(extents[i])
		if len(view) != want || cap(view) != want {
			t.Fatalf("piece %d has %d of %d bytes", i, len(view), cap(view))
		}
	}
	for _, offsets := range [][]uint64{
		{size - 4095, 0, 0}, {0, size, 0}, {0, 0, size - 9}, {^uint64(0), 0, 0}, {^uint64(0) - 4000, 0, 0}, {0, 0}, {0, 0, 0, 0}, nil,
	} {
		if _, err := s.Extents(shape, offsets); handoff.CodeOf(err) != handoff.CodeInvalid {
			t.Fatalf("%v: %v", offsets, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
