package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
)

// transfers is a million for the soak: task soak:transfer.
var transfers = flag.Int("transfers", 2000, "small transfers of the soak test")

const (
	soakPairs   = 4  // of engines, all of them through the same two daemons
	soakSamples = 20 // of the footprint; the first tenth is warm-up
	soakPieces  = 4
	soakBytes   = 4 << 10
	// soakNoise is what a Go process's resident memory may wander by.
	soakNoise = 16 << 20
)

var soakShape = handoff.Shape{Revision: shape.Revision, Layout: shape.Layout, Tokens: 64,
	Groups: []handoff.Group{{Name: "full", Layers: 1, Blocks: soakPieces, BlockBytes: soakBytes}}}

// soakPair moves one handoff after the other between two engines.
type soakPair struct {
	name   string
	p, d   *client.Engine
	pm, dm *client.Memory
	ph, dh *child
	at     []uint64
	count  int
}

// memoryOf makes an engine's memory of one kind.
type memoryOf func(id string, bytes int) (*client.Memory, error)

func newSoakPair(t *testing.T, ph, dh *child, name string, p, d memoryOf) *soakPair {
	t.Helper()
	s := &soakPair{name: name, ph: ph, dh: dh}
	for i := range soakPieces {
		s.at = append(s.at, uint64(2*i+1)*soakBytes) // with a canary before, between and after
	}
	s.p, s.pm = s.join(t, ph, "p"+name, p)
	s.d, s.dm = s.join(t, dh, "d"+name, d)
	return s
}

func (s *soakPair) join(t *testing.T, c *child, id string, memory memoryOf) (*client.Engine, *client.Memory) {
	t.Helper()
	const size = (2*soakPieces + 1) * soakBytes
	m, err := memory(id, size)
	check(t, err)
	check(t, m.WriteAt(0, bytes.Repeat([]byte{0xca}, size)))
	e, err := client.Attach(background(t), client.EngineConfig{Socket: c.Socket, Engine: handoff.EngineID(id), Revision: shape.Revision, Layout: shape.Layout, Segment: m, FlagSlots: 1})
	check(t, err)
	t.Cleanup(func() {
		check(t, e.Close())
		check(t, m.Close())
	})
	return e, m
}

// open is a handoff whose source is sealed and whose target is open; everything of
// it is to be pulled.
type open struct {
	plan  handoff.Plan
	token handoff.Token
	spec  client.PullSpec
}

func (s *soakPair) open(ctx context.Context) (open, error) {
	s.count++
	plan := handoff.Plan{Attempt: handoff.Attempt{Handoff: handoff.HandoffID(fmt.Sprintf("soak-%s-%d", s.name, s.count)), Epoch: 1, Nonce: handoff.Nonce(rand.Uint64() | 1)},
		P:      handoff.Seat{Engine: handoff.EngineID("p" + s.name), Node: s.p.Node(), Incarnation: s.p.Incarnation()},
		D:      handoff.Seat{Engine: handoff.EngineID("d" + s.name), Node: s.d.Node(), Incarnation: s.d.Incarnation()},
		Reader: handoff.Reader{Process: "gateway-1", Incarnation: 1, Number: 1}, BodyDigest: handoff.Digest{1}}
	a := plan.Attempt
	o := open{plan: plan}
	pieces, digests := make([]uint32, soakPieces), make([]uint32, soakPieces)
	b := make([]byte, soakBytes)
	for i, at := range s.at {
		for k := 0; k < len(b); k += 64 {
			b[k] = byte(s.count>>(i%2*8)) + byte(k)
		}
		if err := s.pm.WriteAt(at, b); err != nil {
			return o, err
		}
		pieces[i], digests[i] = uint32(i), client.Checksum(b)
	}
	var err error
	if o.token, err = s.d.OpenTarget(ctx, client.TargetSpec{Plan: plan, Shape: soakShape, Offsets: s.at}); err != nil {
		return o, err
	}
	g, err := s.p.OpenSource(ctx, client.SourceSpec{Plan: plan, Shape: soakShape, Offsets: s.at, Blocks: []uint32{1, 2}})
	if err != nil {
		return o, err
	}
	if err := s.p.Announce(ctx, a, pieces, digests); err != nil {
		return o, err
	}
	o.spec = client.PullSpec{Plan: plan, Token: o.token, SourceAddress: s.ph.Peer, Capability: g.Capability}
	return o, s.p.Seal(ctx, a)
}

// isEqual compares the whole of both memories: canaries are alike on both sides.
func (s *soakPair) isEqual() (bool, error) {
	a, b := make([]byte, s.pm.Size()), make([]byte, s.dm.Size())
	err := errors.Join(s.pm.ReadAt(0, a), s.dm.ReadAt(0, b))
	return bytes.Equal(a, b), err
}

// transfer is one handoff from open to freed; its bytes and the canaries around
// them are looked at.
func (s *soakPair) transfer(ctx context.Context) error {
	o, err := s.open(ctx)
	if err != nil {
		return err
	}
	a := o.plan.Attempt
	if _, err := s.dh.control.Pull(ctx, o.spec, nil); err != nil {
		return err
	}
	if _, err := s.dh.control.Commit(ctx, o.plan, o.token, a.Operation("commit"), 0); err != nil {
		return err
	}
	if equal, err := s.isEqual(); err != nil || !equal {
		return fmt.Errorf("transfer %d: bytes differ, or a byte lies out of place: %w", s.count, err)
	}
	if err := s.free(ctx, s.p, a, client.SourceDrained); err != nil {
		return err
	}
	if err := s.d.FinishTarget(ctx, a); err != nil {
		return err
	}
	return s.free(ctx, s.d, a, client.TargetDrained)
}

// free takes the blocks back once the daemon says that it is quiescent.
func (s *soakPair) free(ctx context.Context, e *client.Engine, a handoff.Attempt, k client.EventKind) error {
	for {
		select {
		case ev := <-e.Events():
			if ev.Kind == k && ev.Attempt == a {
				return e.Freed(ctx, a, k == client.SourceDrained)
			}
		case <-ctx.Done():
			return fmt.Errorf("no %s of %s", k, a)
		}
	}
}

// Memory, descriptors, goroutines and registered bytes of two daemons in their own
// processes stay flat, however many transfers go through them.
func TestASoakOfSmallTransfersLeavesNothingBehind(t *testing.T) {
	t.Parallel() // what it looks at is in processes of its own
	ph, dh := startChild(t, "tp"), startChild(t, "td")
	var pairs []*soakPair
	for n := range soakPairs {
		pairs = append(pairs, newSoakPair(t, ph, dh, fmt.Sprint(n), client.NewMemory, client.NewMemory))
	}
	daemons := []*child{ph, dh}
	samples := map[*child][]footprint{}
	for n := range soakSamples {
		soakRound(t, pairs, *transfers/soakSamples/soakPairs)
		for _, c := range daemons {
			now := c.settled(t)
			samples[c] = append(samples[c], now)
			t.Logf("%7d transfers: %s %+v", (n+1)*(*transfers/soakSamples/soakPairs)*soakPairs, c.node, now)
		}
	}
	for _, c := range daemons {
		mustBeFlat(t, c.node, samples[c])
	}
}

func soakRound(t *testing.T, pairs []*soakPair, each int) {
	t.Helper()
	var wg sync.WaitGroup
	failed := make(chan error, len(pairs))
	for _, s := range pairs {
		wg.Go(func() {
			for range each {
				ctx, cancel := context.WithTimeout(context.Background(), 6*patience)
				err := s.transfer(ctx)
				cancel()
				if err != nil {
					failed <- fmt.Errorf("pair %s: %w", s.name, err)
					return
				}
			}
		})
	}
	wg.Wait()
	close(failed)
	for err := range failed {
		t.Fatal(err)
	}
}

// settled waits until the daemon has forgotten what is over, then measures.
func (c *child) settled(t *testing.T) footprint {
	t.Helper()
	var now footprint
	for end := time.Now().Add(6 * patience); ; <-time.After(50 * time.Millisecond) {
		now = c.footprint(t)
		if now.Tombstones == 0 && now.Pinned == 0 && now.Quarantined == 0 {
			return now
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not forget: %+v", c.node, now)
		}
	}
}

// mustBeFlat compares the samples after the warm-up: the highest of the last
// quarter is no higher than the highest of those before.
func mustBeFlat(t *testing.T, node string, all []footprint) {
	t.Helper()
	warm := all[len(all)/10:]
	early, late := warm[:len(warm)*3/4], warm[len(warm)*3/4:]
	for _, q := range []struct {
		name  string
		of    func(footprint) uint64
		noise uint64
	}{
		{"resident bytes", func(f footprint) uint64 { return f.Resident }, soakNoise},
		{"descriptors", func(f footprint) uint64 { return f.Files }, 2},
		{"goroutines", func(f footprint) uint64 { return f.Goroutines }, 4},
		{"registered bytes", func(f footprint) uint64 { return f.Registered }, 0},
	} {
		highest := func(of []footprint) (h uint64) {
			for _, f := range of {
				h = max(h, q.of(f))
			}
			return h
		}
		if e, l := highest(early), highest(late); l > e+q.noise {
			t.Errorf("%s: %d %s, then %d", node, e, q.name, l)
		}
	}
}
