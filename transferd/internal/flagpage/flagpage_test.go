package flagpage

import (
	"strings"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
)

func long(s string) string { return s + strings.Repeat("x", handoff.MaxIDBytes-len(s)) }

// entry has every name as long as it may be.
var entry = Entry{
	Plan: handoff.Plan{
		Attempt:    handoff.Attempt{Handoff: handoff.HandoffID(long("h")), Epoch: handoff.MaxEpoch, Nonce: ^handoff.Nonce(0)},
		P:          handoff.Seat{Engine: handoff.EngineID(long("p")), Node: handoff.NodeID(long("tp")), Incarnation: ^handoff.Incarnation(0)},
		D:          handoff.Seat{Engine: handoff.EngineID(long("d")), Node: handoff.NodeID(long("td")), Incarnation: 3},
		Reader:     handoff.Reader{Process: long("gateway"), Incarnation: 4, Number: 5},
		BodyDigest: handoff.Digest{6},
	},
	Generation: 7, Incarnation: 3,
}

func TestASlotHoldsTheWholePlan(t *testing.T) {
	p := New(make([]byte, 4*SlotBytes), 4)
	if err := p.Write(2, entry); err != nil {
		t.Fatal(err)
	}
	got, ok := p.Read(2)
	if !ok || got != entry {
		t.Fatalf("%+v %v", got, ok)
	}
	if p.IsVisible(2, entry.Plan.Attempt) {
		t.Fatal("visible before its commit")
	}
	p.Set(2, Visible)
	if !p.IsVisible(2, entry.Plan.Attempt) || p.IsVisible(1, entry.Plan.Attempt) {
		t.Fatal("not visible, or elsewhere too")
	}
	other := entry.Plan.Attempt
	other.Nonce--
	if p.IsVisible(2, other) {
		t.Fatal("visible for another attempt")
	}
	for _, i := range []uint32{0, 1, 3} {
		if _, ok := p.Read(i); ok {
			t.Fatalf("slot %d was written", i)
		}
	}
}

func TestATornSlotSaysNothing(t *testing.T) {
	memory := make([]byte, SlotBytes)
	p := New(memory, 1)
	if err := p.Write(0, entry); err != nil {
		t.Fatal(err)
	}
	for i := 4; i < SlotBytes; i++ {
		memory[i] ^= 0x10
		got, ok := p.Read(0)
		if ok && got != entry {
			t.Fatalf("byte %d damaged and read as %+v", i, got)
		}
		memory[i] ^= 0x10
	}
}

func TestAPlanThatDoesNotFitIsRefused(t *testing.T) {
	e := entry
	e.Plan.Reader.Process = long("x") + "y"
	if err := New(make([]byte, SlotBytes), 1).Write(0, e); handoff.CodeOf(err) != handoff.CodeTooLarge {
		t.Fatal(err)
	}
}

func TestAPageIsNotMadeOfTooLittleMemory(t *testing.T) {
	if New(make([]byte, SlotBytes), 2) != nil || New(nil, 0) != nil || New(make([]byte, SlotBytes), MaxSlots+1) != nil {
		t.Fatal("made")
	}
}

func FuzzRead(f *testing.F) {
	memory := make([]byte, SlotBytes)
	if err := New(memory, 1).Write(0, entry); err != nil {
		f.Fatal(err)
	}
	f.Add(memory)
	f.Fuzz(func(t *testing.T, b []byte) {
		p := New(append([]byte(nil), b...), 1)
		if p == nil {
			return
		}
		got, ok := p.Read(0)
		if !ok {
			return
		}
		again := New(make([]byte, SlotBytes), 1)
		if err := again.Write(0, got); err != nil {
			return // names of more than MaxIDBytes: such a plan is refused by whoever reads it
		}
		if back, ok := again.Read(0); !ok || back != got {
			t.Fatalf("%+v became %+v", got, back)
		}
	})
}
