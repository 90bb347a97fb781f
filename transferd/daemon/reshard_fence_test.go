package daemon_test

import (
	"bytes"
	"math/rand"
	"net"
	"strings"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/layout"
	"github.com/surehand/surehand/contracts/layout/layouttest"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/client"
)

// sides are two layouts of one model between which every piece is cut: heads and
// tokens change places.
func sides() (p, d layout.Layout, m layout.Model) {
	cache := layout.Cache{Name: "kv", Layers: 2, KVHeads: 4, HeadDim: 64, DType: "bfloat16", Packing: layout.PackedKV, Order: layout.NHD}
	p = layout.Layout{BlockTokens: 16, Parallel: 1, Caches: []layout.Cache{cache}}
	cache.Order, cache.KVHeads, cache.Packing = layout.HND, 2, layout.ApartKV
	d = layout.Layout{BlockTokens: 32, Parallel: 2, Caches: []layout.Cache{cache}}
	return p, d, layout.Model{Heads: []uint32{4}}
}

func newSides(t *testing.T, tokens uint32, change ...func(p, d *layout.Layout, m *layout.Model)) *reshard {
	t.Helper()
	ph, dh := startHost(t, "tp"), startHost(t, "td")
	pl, dl, m := sides()
	for _, c := range change {
		c(&pl, &dl, &m)
	}
	rng := rand.New(rand.NewSource(1))
	p := attachRanks(t, ph, "p1", layout.Described{Layout: pl, Model: m}, tokens, rng)
	d := attachRanks(t, dh, "d1", layout.Described{Layout: dl, Model: m}, tokens, rng)
	if len(change) == 0 {
		p.fill(layouttest.Whole(pl, m, tokens))
	}
	r := newReshard(t, ph, dh, p, d)
	r.open()
	return r
}

// Pairs that cannot be are refused with the reason, before any byte.
func TestLayoutsThatCannotBeReshardedAreRefusedBeforeAnyByte(t *testing.T) {
	for reason, change := range map[string]func(p, d *layout.Layout, m *layout.Model){
		"dtype":           func(_, d *layout.Layout, _ *layout.Model) { d.Caches[0].DType = "float16" },
		"head dimension":  func(_, d *layout.Layout, _ *layout.Model) { d.Caches[0].HeadDim = 128 },
		"layers":          func(_, d *layout.Layout, _ *layout.Model) { d.Caches[0].Layers = 3 },
		"no even share":   func(_, _ *layout.Layout, m *layout.Model) { m.Heads = []uint32{6} },
		"number of items": func(_, d *layout.Layout, _ *layout.Model) { d.Items = []layout.Item{{Class: "ssm", Bytes: 64}} },
		"split in a way": func(p, d *layout.Layout, _ *layout.Model) {
			p.Items = []layout.Item{{Class: "ssm", Bytes: 64}}
			d.Items = p.Items
		},
		"interior":  func(_, d *layout.Layout, _ *layout.Model) { d.Caches[0].Interior = "amx" },
		"window":    func(_, d *layout.Layout, _ *layout.Model) { d.Caches[0].Window = 64 },
		"is \"kv\"": func(p, _ *layout.Layout, _ *layout.Model) { p.Caches[0].Name = "other" },
		"number of caches": func(p, _ *layout.Layout, _ *layout.Model) {
			p.Caches = append(p.Caches, p.Caches[0])
			p.Caches[1].Name = "more"
		},
		"latent of cache": func(p, _ *layout.Layout, _ *layout.Model) {
			p.Caches[0].Packing, p.Caches[0].KVHeads = layout.Latent, 1
		},
	} {
		t.Run(reason, func(t *testing.T) {
			r := newSides(t, 40, change)
			r.announce(rand.New(rand.NewSource(1)))
			check(t, r.p.Seal(background(t), r.plan.Attempt))
			_, err := r.pull()
			wantCode(t, err, handoff.CodeMismatch, handoff.CodeInvalid)
			if !strings.Contains(err.Error(), reason) && !strings.Contains(reason, "kv") {
				t.Fatalf("no reason: %v", err)
			}
			d, err := r.dh.control.Describe(background(t), false)
			check(t, err)
			if d.GetPulledBytesTotal() != 0 {
				t.Fatal("bytes moved")
			}
			r.d.holds(t, nil, "refused")
		})
	}
}

func TestALayoutThatIsNotWhatItsFingerprintNamesIsRefused(t *testing.T) {
	h := startHost(t, "tp")
	pl, dl, m := sides()
	memory, err := client.NewMemory("m", 1<<20)
	check(t, err)
	defer func() { check(t, memory.Close()) }()
	_, err = client.Attach(background(t), client.EngineConfig{Socket: h.cfg.EngineSocket, Engine: "e", Revision: "m", Layout: pl.Fingerprint(),
		Described: &layout.Described{Layout: dl, Model: m}, Segment: memory, FlagSlots: 1})
	wantCode(t, err, handoff.CodeInvalid)
}

func TestAReshardedPieceThatChangedUnderItsDigestIsReadAgainThenRefused(t *testing.T) {
	r := newSides(t, 90)
	r.announce(rand.New(rand.NewSource(2)))
	pulled := make(chan error, 1)
	flip := func() { r.p.piece(3)[17] ^= 1 }
	flip()
	go func() { _, err := r.pull(); pulled <- err }()
	total := r.p.shape.Bytes()
	eventually(t, "everything landed, the wrong byte too", func() bool {
		d, err := r.dh.control.Describe(background(t), false)
		check(t, err)
		return d.GetPulledBytesTotal() == total
	})
	flip() // a stray writer's hit that is gone when it is looked at again
	check(t, r.p.Seal(background(t), r.plan.Attempt))
	check(t, <-pulled)
	_, dl, m := sides()
	r.d.holds(t, layouttest.Whole(dl, m, 90), "read again")

	again := newSides(t, 90)
	again.announce(rand.New(rand.NewSource(2)))
	again.p.piece(3)[17] ^= 1
	check(t, again.p.Seal(background(t), again.plan.Attempt))
	_, err := again.pull()
	wantCode(t, err, handoff.CodeIntegrity)
}

// sglang#24527 for pieces that go by the staging ring: the target is drained
// at once, for nothing may write it, and what comes late stays in the slot.
func TestALateByteOfAStagedPieceReachesASlotAndNeverTheTarget(t *testing.T) {
	r := newSides(t, 64)
	pl, _, m := sides()
	encoded, err := rpc.EncodeLayout(layout.Described{Layout: pl, Model: m})
	check(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer func() { _ = l.Close() }()
	half, rest, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	late := bytes.Repeat([]byte{0xdd}, len(r.p.piece(0)))
	go func() {
		defer close(over)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		p := &peer{t, c}
		p.greet()
		p.next()
		p.send(wire.AppendSource(nil, wire.Source{Grant: 1, State: handoff.SourceOpened, Shape: r.p.shape, Layout: encoded}))
		p.send(wire.AppendRuns(nil, wire.KindReady, []wire.Run{{First: 0, Count: 1}}))
		for k, _ := p.next(); k != wire.KindRead; k, _ = p.next() {
		}
		p.send(wire.AppendData(nil, []wire.Entry{{Piece: 0, Length: uint32(len(late)), Check: wire.Checksum(late)}}))
		p.send(late[:len(late)/2])
		close(half)
		<-rest
		_, _ = c.Write(late[len(late)/2:])
	}()
	pulled := make(chan error, 1)
	go func() {
		_, err := r.dh.control.Pull(background(t), client.PullSpec{Plan: r.plan, Token: r.token, SourceAddress: l.Addr().String(), ProgressDeadline: patience}, nil)
		pulled <- err
	}()
	<-half
	answer, err := r.dh.control.Undo(background(t), r.plan, r.plan.Attempt.Operation("undo"), client.Sides{Target: true})
	check(t, err)
	if !answer.Drained {
		t.Fatalf("a piece that is staged posts nothing: %+v", answer)
	}
	check(t, r.d.Freed(background(t), r.plan.Attempt, false))
	close(rest)
	wantCode(t, <-pulled, handoff.CodeClosed)
	<-over
	r.d.holds(t, nil, "after the late byte")
}
