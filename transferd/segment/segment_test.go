package segment

import (
	"os"
	"strings"
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
	var book Book
	if _, err := book.Map(f, size+1); handoff.CodeOf(err) != handoff.CodeInvalid {
		t.Fatal(err)
	}
	s, err := book.Map(f, size)
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

// A memory that is registered twice is mapped once, and goes with the last of its
// registrations: what still reads by the other one is never unmapped under its feet.
func TestAMemoryThatIsRegisteredTwiceGoesWithTheLast(t *testing.T) {
	f, err := native.Memfd("registered-twice", size)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mappings := func() int {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(maps), "memfd:registered-twice")
	}
	var book Book
	var held [3]*Segment
	for i, bytes := range []uint64{size, size, size / 2} {
		if held[i], err = book.Map(f, bytes); err != nil {
			t.Fatal(err)
		}
	}
	if held[0].Memory != held[1].Memory || held[0].Memory == held[2].Memory || mappings() != 2 {
		t.Fatalf("%d mappings", mappings())
	}
	e := Extent{At: 8, Length: 4}
	copy(held[0].View(e), "abcd")
	for _, s := range []*Segment{held[0], held[2]} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if string(held[1].View(e)) != "abcd" {
			t.Fatal("unmapped under its other registration")
		}
	}
	if err := held[1].Close(); err != nil || mappings() != 0 || len(book.open) != 0 {
		t.Fatal(err, mappings())
	}
	again, err := book.Map(f, size)
	if err != nil || again.Close() != nil {
		t.Fatal(err)
	}
}
