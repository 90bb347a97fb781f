package daemon_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
)

// Opaque states of odd lengths arrive whole, between canaries, at another offset.
func TestAnOpaqueStateArrivesWhole(t *testing.T) {
	ph, p, dh, d := pair(t)
	for _, size := range []uint64{1, 1<<20 - 1, 1 << 20, 1<<20 + 1, 3<<20 - 7} {
		m := newMove(t, ph, p, dh, d)
		from, err := client.NewBlob(shape.Revision, shape.Layout, 1, 13, size)
		check(t, err)
		to, err := client.NewBlob(shape.Revision, shape.Layout, 1, 77, size)
		check(t, err)
		source, target := p.memory.Bytes()[13:13+size], d.memory.Bytes()
		for i := range source {
			source[i] = byte(rand.Uint32())
		}
		copy(target, bytes.Repeat([]byte{0xca}, len(target)))
		m.token, err = d.OpenTarget(background(t), client.TargetSpec{Plan: m.plan, Shape: to.Shape, Offsets: to.Offsets, FlagSlot: m.slot})
		check(t, err)
		g, err := p.OpenSource(background(t), client.SourceSpec{Plan: m.plan, Shape: from.Shape, Offsets: from.Offsets})
		check(t, err)
		m.capability = g.Capability
		var pieces, digests []uint32
		for i := range from.Shape.Pieces() {
			place, _ := from.Shape.Place(i)
			pieces = append(pieces, i)
			digests = append(digests, client.Checksum(p.memory.Bytes()[from.Offsets[i]:from.Offsets[i]+uint64(place.Bytes)]))
		}
		check(t, p.Announce(background(t), m.plan.Attempt, pieces, digests))
		check(t, m.seal())
		_, err = m.pull()
		check(t, err)
		want := bytes.Repeat([]byte{0xca}, len(target))
		copy(want[77:], source)
		if !bytes.Equal(target, want) {
			t.Fatalf("%d bytes: they differ, or lie out of place", size)
		}
	}
	for _, size := range []uint64{0, ^uint64(0), handoff.MaxPieces << 20} {
		if _, err := client.NewBlob(shape.Revision, shape.Layout, 1, 0, size); err == nil {
			t.Errorf("an opaque state of %d bytes", size)
		}
	}
}
