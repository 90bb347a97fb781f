package pull

import (
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A slot that is being filled is nobody else's until its batch landed or its
// connection is destroyed; a batch of a connection that is gone is never scattered.
func TestASlotIsFencedLikeABlock(t *testing.T) {
	made := 0
	r := ring{pool: &sync.Pool{New: func() any { made++; return new(slot) }}}
	batch := func(piece uint32) ([]wire.Entry, [][]byte) {
		entries := []wire.Entry{{Piece: piece, Length: 64}, {Piece: piece + 1, Length: 32}}
		places := make([][]byte, 2)
		r.take(entries, places)
		return entries, places
	}
	first, a := batch(0)
	second, b := batch(10)
	if len(a[0]) != 64 || len(a[1]) != 32 || &a[0][0] == &b[0][0] || made != 2 {
		t.Fatal("two batches on their way share a slot")
	}
	s, err := r.full(first)
	if err != nil || s == nil {
		t.Fatal(s, err)
	}
	r.give(s)
	late := r.filling[second[0].Piece]
	r.destroyed()
	if s, err := r.full(second); s != nil || err != nil {
		t.Fatal("a batch of a connection that is gone has a slot", s, err)
	}
	r.filling[second[0].Piece] = late // as a lane would that hands it over nevertheless
	if _, err := r.full(second); handoff.CodeOf(err) != handoff.CodeInternal {
		t.Fatal(err)
	}
}

func TestPullsOverARailShareItsCredit(t *testing.T) {
	var c credits
	c.take("a", RailBytes-10)
	if c.room("a") != 10 || c.room("b") != RailBytes {
		t.Fatal(c.room("a"), c.room("b"))
	}
	c.take("a", 100) // one batch is always allowed
	if c.room("a") != 0 {
		t.Fatal(c.room("a"))
	}
	c.give("a", RailBytes+90)
	if c.room("a") != RailBytes || len(c.flight) != 0 {
		t.Fatal(c.room("a"), c.flight)
	}
}
