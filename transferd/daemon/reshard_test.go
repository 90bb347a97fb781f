package daemon_test

import (
	"bytes"
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/layout"
	"github.com/surehand/surehand/contracts/layout/layouttest"
	"github.com/surehand/surehand/transferd/client"
)

// rank is one engine of a layout with its memory: pieces scattered, canaries all
// around them.
type ranks struct {
	*client.Engine
	id      handoff.EngineID
	memory  *client.Memory
	shape   handoff.Shape
	offsets []uint64
}

const canary = 0xca

func attachRanks(t *testing.T, h *host, id handoff.EngineID, d layout.Described, tokens uint32, rng *rand.Rand) *ranks {
	t.Helper()
	r := &ranks{id: id, shape: d.Layout.Whole("m", tokens)}
	at := uint64(64)
	r.offsets = make([]uint64, r.shape.Pieces())
	for _, i := range rng.Perm(len(r.offsets)) {
		p, _ := r.shape.Place(uint32(i))
		r.offsets[i] = at
		at += uint64(p.Bytes) + 64
	}
	var err error
	if rng.Intn(4) == 0 { // plain memory has no views
		r.memory, err = client.NewPlainMemory(int(at))
	} else {
		r.memory, err = client.NewMemory("ranks", int(at))
	}
	check(t, err)
	for i := range r.memory.Bytes() {
		r.memory.Bytes()[i] = canary
	}
	r.Engine, err = client.Attach(background(t), client.EngineConfig{Socket: h.cfg.EngineSocket, Engine: id, Revision: "m",
		Layout: d.Layout.Fingerprint(), Described: &d, Segment: r.memory, FlagSlots: 4})
	check(t, err)
	t.Cleanup(func() {
		check(t, r.Close())
		check(t, r.memory.Close())
	})
	return r
}

func (r *ranks) piece(i uint32) []byte {
	p, _ := r.shape.Place(i)
	return r.memory.Bytes()[r.offsets[i] : r.offsets[i]+uint64(p.Bytes)]
}

// fill writes the state of every piece.
func (r *ranks) fill(state [][]byte) {
	for i, b := range state {
		for k, v := range b {
			if v != layouttest.Nobody {
				r.piece(uint32(i))[k] = v
			}
		}
	}
}

// holds fails on the first byte of the whole memory that is not what it should be:
// state, or canary where no token's state lies.
func (r *ranks) holds(t *testing.T, state [][]byte, what string) {
	t.Helper()
	want := bytes.Repeat([]byte{canary}, len(r.memory.Bytes()))
	for i, b := range state {
		for k, v := range b {
			if v != layouttest.Nobody {
				want[r.offsets[i]+uint64(k)] = v
			}
		}
	}
	if bytes.Equal(want, r.memory.Bytes()) {
		return
	}
	for i := range want {
		if want[i] != r.memory.Bytes()[i] {
			t.Fatalf("%s: byte %d is %#x, want %#x", what, i, r.memory.Bytes()[i], want[i])
		}
	}
}

// reshard is one handoff between two layouts.
type reshard struct {
	t      *testing.T
	ph, dh *host
	p, d   *ranks
	plan   handoff.Plan
	token  handoff.Token
	grant  client.SourceGrant
}

func newReshard(t *testing.T, ph, dh *host, p, d *ranks) *reshard {
	t.Helper()
	return &reshard{t: t, ph: ph, dh: dh, p: p, d: d, plan: handoff.Plan{
		Attempt:    handoff.Attempt{Handoff: handoff.HandoffID(fmt.Sprint("reshard-", p.id)), Epoch: 1, Nonce: 1},
		P:          handoff.Seat{Engine: p.id, Node: p.Node(), Incarnation: p.Incarnation()},
		D:          handoff.Seat{Engine: d.id, Node: d.Node(), Incarnation: d.Incarnation()},
		BodyDigest: handoff.Digest{1}}}
}

func (r *reshard) open() {
	r.t.Helper()
	var err error
	r.token, err = r.d.OpenTarget(background(r.t), client.TargetSpec{Plan: r.plan, Shape: r.d.shape, Offsets: r.d.offsets})
	check(r.t, err)
	r.grant, err = r.p.OpenSource(background(r.t), client.SourceSpec{Plan: r.plan, Shape: r.p.shape, Offsets: r.p.offsets})
	check(r.t, err)
}

// announce tells of pieces in an order of its own.
func (r *reshard) announce(rng *rand.Rand) {
	r.t.Helper()
	var pieces, digests []uint32
	for _, i := range rng.Perm(int(r.p.shape.Pieces())) {
		pieces = append(pieces, uint32(i))
		digests = append(digests, client.Checksum(r.p.piece(uint32(i))))
	}
	half := len(pieces) / 2
	check(r.t, r.p.Announce(background(r.t), r.plan.Attempt, pieces[:half], digests[:half]))
	check(r.t, r.p.Announce(background(r.t), r.plan.Attempt, pieces[half:], digests[half:]))
}

func (r *reshard) pull() (client.PullResult, error) {
	return r.dh.control.Pull(background(r.t), client.PullSpec{Plan: r.plan, Token: r.token, SourceAddress: r.ph.PeerAddress(), Capability: r.grant.Capability}, nil)
}

// vllm#42097, #28661, #42895, sglang#22145, vllm#49297: over a
// real pair of daemons, whatever the two layouts are, D's memory holds afterwards
// what D's own prefill would have left, and not one byte beside it.
func TestAPullBetweenLayoutsLeavesWhatDsOwnPrefillWould(t *testing.T) {
	rng := rand.New(rand.NewSource(7))
	hosts := map[string]func() (*host, *host){
		"tcp, four streams": func() (*host, *host) { return startHost(t, "tp"), startHost(t, "td", streams(4)) },
		"tcp":               func() (*host, *host) { return startHost(t, "tp"), startHost(t, "td") },
		"local":             func() (*host, *host) { h := startHost(t, "t1"); return h, h },
	}
	for lane, start := range hosts {
		ph, dh := start()
		for n := range 25 {
			pl, dl, m := layouttest.Pair(rng.Intn)
			tokens := uint32(1 + rng.Intn(300))
			name := fmt.Sprintf("%s %d: %+v to %+v, %d tokens", lane, n, pl, dl, tokens)
			p := attachRanks(t, ph, handoff.EngineID(fmt.Sprint("p-", n)), layout.Described{Layout: pl, Model: m}, tokens, rng)
			d := attachRanks(t, dh, handoff.EngineID(fmt.Sprint("d-", n)), layout.Described{Layout: dl, Model: m}, tokens, rng)
			p.fill(layouttest.Whole(pl, m, tokens))
			r := newReshard(t, ph, dh, p, d)
			r.open()
			r.announce(rng)
			check(t, p.Seal(background(t), r.plan.Attempt))
			got, err := r.pull()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got.Repulled != 0 || !strings.HasPrefix(lane, got.Lane) {
				t.Fatalf("%s: %+v", name, got)
			}
			_, err = dh.control.Commit(background(t), r.plan, r.token, r.plan.Attempt.Operation("commit"), 0)
			check(t, err)
			d.holds(t, layouttest.Whole(dl, m, tokens), name)
		}
	}
}
