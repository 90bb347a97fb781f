package daemon_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
	"github.com/surehand/surehand/transferd/fence"
)

// Rows of the museum of defects, each with the report that it comes from.

// orders gives every order of n things.
func orders(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var out [][]int
	for _, rest := range orders(n - 1) {
		for at := range n {
			o := append(append(append([]int{}, rest[:at]...), n-1), rest[at:]...)
			out = append(out, o)
		}
	}
	return out
}

// vllm-project/vllm#46283, #46289 and #25067, #25562, #57570: both
// sides end a handoff in any order, each word said twice, while pieces that D asked for
// are on their way; both get their blocks back, and nobody panics.
func TestBothSidesEndInAnyOrderAndGetTheirBlocksBack(t *testing.T) {
	ph, p, dh, d := pair(t) // only the ends end it
	r := newRelay(t, ph.PeerAddress)
	for _, order := range orders(4) {
		m := newMove(t, ph, p, dh, d)
		m.open()
		r.keep()
		m.announce(0, 1)
		pulled := make(chan error, 1)
		go func() { pulled <- m.through(r) }()
		eventually(t, "two pieces are on their way", func() bool {
			targets, _ := dh.Core().Records(100)
			return slices.ContainsFunc(targets, func(r fence.TargetRecord) bool { return r.Plan.Attempt == m.plan.Attempt && r.Posted == 2 })
		})
		ends := []func(){
			func() {
				_, err := dh.control.Undo(background(t), m.plan, m.plan.Attempt.Operation("undo"), client.Sides{Target: true})
				check(t, err)
			},
			func() {
				_, err := ph.control.Release(background(t), m.plan, m.plan.Attempt.Operation("release"), client.Sides{Source: true})
				check(t, err)
			},
			func() { check(t, d.FinishTarget(background(t), m.plan.Attempt)) },
			func() { check(t, p.CloseSource(background(t), m.plan.Attempt, handoff.CodeEngine)) },
		}
		for _, i := range order {
			ends[i]()
			ends[i]()
		}
		if err := <-pulled; err == nil {
			t.Fatal(order, "it was pulled")
		}
		m.d.await(t, client.TargetDrained, m.plan.Attempt)
		m.p.await(t, client.SourceDrained, m.plan.Attempt)
		r.let()
		check(t, d.Freed(background(t), m.plan.Attempt, false))
		check(t, p.Freed(background(t), m.plan.Attempt, true))
		m.neverVisible()
	}
	for _, h := range []*host{ph, dh} {
		s := h.Core().Stats()
		if s.TargetsLive+s.TargetsQuarantined+s.SourcesLive+s.SourcesQuarantined+s.PinnedBlocks != 0 || s.QuarantinedBytes != 0 {
			t.Fatalf("%+v", s)
		}
	}
}

// kvcache-ai/Mooncake#2017, #364, #304: the last byte of the region arrives;
// one byte further is refused, never cut.
func TestTheLastByteOfARegionArrives(t *testing.T) {
	m := newPair(t)
	m.from[0], m.to[0] = segment-blockBytes, segment-blockBytes
	for i := range m.from[1:] { // the others keep away from it
		m.from[i+1], m.to[i+1] = uint64(i)*blockBytes, uint64(2*i)*blockBytes
	}
	for i := range shape.Pieces() {
		copy(m.source(i), bytes.Repeat([]byte{byte(i + 1)}, blockBytes))
	}
	m.p.memory.Bytes()[segment-1] = 0x7e
	m.ready()
	_, err := m.pull()
	check(t, err)
	if m.d.memory.Bytes()[segment-1] != 0x7e || !m.isEqual() {
		t.Fatal("the last byte did not arrive")
	}
	over := newMove(t, m.ph, m.p, m.dh, m.d)
	over.from[0] = segment - blockBytes + 1
	wantCode(t, over.openSource(), handoff.CodeInvalid)
}

// openucx/ucx#11629: reads begin while their peer is being cut off, many
// times; each ends with a typed error or with the right bytes.
func TestReadsThatBeginWhileTheirPeerIsCutOff(t *testing.T) {
	ph, p, dh, d := pair(t)
	r := newRelay(t, ph.PeerAddress)
	for n := range max(60, *rounds) {
		m := newMove(t, ph, p, dh, d)
		m.ready()
		done := make(chan error, 1)
		go func() { done <- m.through(r) }()
		for range rand.IntN(4) {
			r.cut()
		}
		if err := <-done; err != nil {
			if handoff.CodeOf(err) == handoff.CodeInternal {
				t.Fatal(n, err)
			}
			m.neverVisible()
		} else if !m.isEqual() {
			t.Fatal(n, "bytes differ")
		}
		_, err := m.undo()
		check(t, err)
		_, err = ph.control.Undo(background(t), m.plan, m.plan.Attempt.Operation("undo"), client.Sides{Source: true})
		check(t, err)
		m.d.await(t, client.TargetDrained, m.plan.Attempt)
		m.p.await(t, client.SourceDrained, m.plan.Attempt)
		check(t, d.Freed(background(t), m.plan.Attempt, false))
		check(t, p.Freed(background(t), m.plan.Attempt, true))
	}
}

// vllm-project/vllm#41269, #29906: a release for what nobody knows is fine.
func TestAReleaseOfAnUnknownHandoffIsAnswered(t *testing.T) {
	m := newPair(t)
	for range 2 {
		_, err := m.ph.control.Release(background(t), m.plan, m.plan.Attempt.Operation("release"), client.Sides{Source: true})
		check(t, err)
		_, err = m.dh.control.Release(background(t), m.plan, m.plan.Attempt.Operation("release"), client.Sides{Target: true})
		check(t, err)
	}
	wantCode(t, m.openSource(), handoff.CodeClosed)
}

// sgl-project/sglang#38961: one P rank is read by four D ranks; an abort of
// any of them drains it and no other.
func TestEachReaderOfAFanOutGetsItsOwnProofOfQuiescence(t *testing.T) {
	for gone := range 4 {
		t.Run(fmt.Sprint(gone), func(t *testing.T) {
			ph, p, dh, d := pair(t)
			var moves []*move
			var pulls []<-chan error
			for range 4 {
				moves = append(moves, newMove(t, ph, p, dh, d))
			}
			for k, m := range moves {
				for i := range m.from { // places of its own
					m.from[i] = uint64(k*len(m.from)+i) * blockBytes
					m.to[i] = m.from[i]
				}
				m.open()
				m.announce(0)
				pulls = append(pulls, m.async())
			}
			_, err := moves[gone].undo()
			check(t, err)
			d.await(t, client.TargetDrained, moves[gone].plan.Attempt)
			for i, m := range moves {
				if i == gone {
					continue
				}
				for piece := uint32(1); piece < shape.Pieces(); piece++ {
					m.announce(piece)
				}
				check(t, m.seal())
				check(t, <-pulls[i])
			}
			if err := <-pulls[gone]; err == nil {
				t.Fatal("an undone pull ended well")
			}
			if n, _ := d.saw(client.TargetDrained, moves[(gone+1)%4].plan.Attempt); n != 0 {
				t.Fatal("another one was called drained")
			}
		})
	}
}
