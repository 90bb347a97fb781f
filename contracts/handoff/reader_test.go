package handoff

import "testing"

func TestAReaderDecidesOnceAndDeliversOneAttempt(t *testing.T) {
	e1, e2 := testPlan(1, 1).Attempt, testPlan(2, 2).Attempt
	var r Reading
	if !r.Deliver(e1) || !r.Deliver(e1) || r.GiveUp(e1) != ReaderDelivering || r.Deliver(e2) || *r.Delivering() != e1 {
		t.Error("delivering is not for good")
	}
	var g Reading
	if g.GiveUp(e1) != ReaderGivenUp || g.Deliver(e1) || g.GiveUp(e1) != ReaderGivenUp || !g.Deliver(e2) {
		t.Error("given up is not for good")
	}
	var n Reading
	if n.Newest(e2); n.Deliver(e1) || n.GiveUp(e1) != ReaderGivenUp || !n.Deliver(e2) {
		t.Error("an older attempt does not count as given up")
	}
}

func TestAReadersRecordIsBounded(t *testing.T) {
	var r Reading
	for i := range MaxReaderAttempts {
		if r.GiveUp(Attempt{"r", 1, Nonce(i + 1)}) != ReaderGivenUp {
			t.Fatal("refused below the limit")
		}
	}
	over := Attempt{"r", 1, 1 << 40}
	if r.GiveUp(over) != ReaderUndecided || r.Deliver(over) {
		t.Error("an attempt that cannot be recorded was decided")
	}
}

func TestPinsAreCountedByGrant(t *testing.T) {
	var p Pins
	p.Pin(1, 1)
	p.Pin(1, 2)
	p.Pin(1, 2)
	if p.Unpin(1, 2); !p.Pinned(1) || p.Len() != 1 {
		t.Error("one grant's end unpinned another's block")
	}
	if !p.Unpin(1, 1) || p.Pinned(1) || p.Len() != 0 {
		t.Error("a block nobody reads stays pinned")
	}
}

func TestTheLedgerIsASet(t *testing.T) {
	a, b := testPlan(1, 1).Attempt, testPlan(1, 2).Attempt
	c := Capacity{Total: 4}
	c.Release(a)
	if CodeOf(c.Reserve(0, a, 5, 1)) != CodeCapacity || CodeOf(c.Reserve(0, a, 0, 1)) != CodeInvalid {
		t.Error("accepted")
	}
	if c.Reserve(0, a, 3, 10) != nil || c.Reserve(0, a, 3, 10) != nil || c.Used() != 3 || c.Free() != 1 {
		t.Error("a repeat has a second effect")
	}
	if !c.Renew(5, a, 10) || c.Renew(5, b, 10) || len(c.Expire(14)) != 0 || len(c.Expire(15)) != 1 || c.Free() != 4 {
		t.Error("leases")
	}
	c.Rebuild(20, map[Attempt]uint32{a: 3, b: 3}, 10)
	if c.Free() != 0 || c.Used() != 6 || len(c.Entries()) != 2 {
		t.Error("what TD holds is not held")
	}
}
