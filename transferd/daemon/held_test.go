package daemon_test

import (
	"bytes"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
)

func (m *move) openHolding(held []uint32) error {
	var err error
	m.token, err = m.d.OpenTarget(background(m.t), client.TargetSpec{Plan: m.plan, Shape: shape, Offsets: m.to, FlagSlot: m.slot, Held: held})
	return err
}

func TestAPrefixThatDHasIsNeitherReadNorWritten(t *testing.T) {
	m := newPair(t)
	held := []uint32{0, 1, 3}
	for _, p := range held {
		for i := range m.target(p) {
			m.target(p)[i] = 0xA5 // D's own: not the bytes of P
		}
	}
	check(t, m.openHolding(held))
	check(t, m.openSource())
	m.announce(all()...)
	check(t, m.seal())
	got, err := m.pull()
	check(t, err)
	left := shape.Bytes() - uint64(len(held))*blockBytes
	if want := shape.Pieces() - uint32(len(held)); got.Pieces != want || got.Bytes != left {
		t.Fatalf("%d pieces and %d bytes came, want %d and %d", got.Pieces, got.Bytes, want, left)
	}
	_, err = m.commit()
	check(t, err)
	m.d.await(t, client.TargetCommitted, m.plan.Attempt)
	for p := range shape.Pieces() {
		own := bytes.Count(m.target(p), []byte{0xA5}) == len(m.target(p)) // the last piece is shorter than a block
		if isHeld := p == 0 || p == 1 || p == 3; isHeld != own && string(m.source(p)) != string(m.target(p)) {
			t.Fatalf("piece %d: held %v, and its bytes are neither D's nor P's", p, isHeld)
		}
		if (p == 0 || p == 1 || p == 3) && !own {
			t.Fatalf("held piece %d was written", p)
		}
	}
}

func TestHeldPiecesThatAreNoPrefixOfAnythingAreRefused(t *testing.T) {
	m := newPair(t)
	for _, held := range [][]uint32{{1, 1}, {2, 1}, {shape.Pieces()}, all()} {
		wantCode(t, m.openHolding(held), handoff.CodeInvalid)
	}
	check(t, m.openHolding([]uint32{2}))
	wantCode(t, m.openHolding([]uint32{2, 4}), handoff.CodeConflict)
	check(t, m.openHolding([]uint32{2}))
}
