package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
)

// pair is the two engines of a row, and how each cuts what is moved.
type pair struct {
	r       *rig
	p, d    *client.Engine
	pid     handoff.EngineID
	did     handoff.EngineID
	ph, dh  *host
	plain   bool // without checksums
	source  end
	target  end
	pieces  []uint32 // of P
	digests []uint32
}

// handoff moves everything; one moves one block, many times.
func (x *pair) handoff(ctx context.Context) (sample, error) {
	clear(x.r.target.Bytes()[:min(1<<16, len(x.r.target.Bytes()))])
	s, err := x.move(ctx, x.source, x.target)
	if err != nil || x.source.described != nil { // what a plan makes of the bytes is contracts/layout's to test
		return s, err
	}
	return s, x.r.check()
}

func (x *pair) one(ctx context.Context) (sample, error) {
	source, target := x.source, x.target
	source.shape.Groups = []handoff.Group{{Name: "one", Layers: 1, Blocks: 1, BlockBytes: 64 << 10}}
	target.shape = source.shape
	source.offsets, target.offsets = source.offsets[:1], target.offsets[:1]
	var took []float64
	for range 300 {
		s, err := x.move(ctx, source, target)
		if err != nil {
			return s, err
		}
		took = append(took, float64(s.wire))
	}
	return sample{bytes: 64 << 10, wire: time.Duration(median(took)), tail: time.Duration(quantile(took, 99))}, nil
}

// move is one whole handoff, from open to freed, of which the pull is measured.
func (x *pair) move(ctx context.Context, source, target end) (sample, error) {
	r := x.r
	r.handed++
	plan := handoff.Plan{Attempt: handoff.Attempt{Handoff: handoff.HandoffID(fmt.Sprint("bench-", r.handed)), Epoch: 1, Nonce: 1},
		P:          handoff.Seat{Engine: x.pid, Node: x.p.Node(), Incarnation: x.p.Incarnation()},
		D:          handoff.Seat{Engine: x.did, Node: x.d.Node(), Incarnation: x.d.Incarnation()},
		BodyDigest: handoff.Digest{1}}
	n := len(source.offsets)
	began := time.Now()
	token, err := x.d.OpenTarget(ctx, client.TargetSpec{Plan: plan, Shape: target.shape, Offsets: target.offsets})
	if err != nil {
		return sample{}, err
	}
	g, err := x.p.OpenSource(ctx, client.SourceSpec{Plan: plan, Shape: source.shape, Offsets: source.offsets})
	if err != nil {
		return sample{}, err
	}
	if err := errors.Join(x.p.Announce(ctx, plan.Attempt, x.pieces[:n], x.digests[:n]), x.p.Seal(ctx, plan.Attempt)); err != nil {
		return sample{}, err
	}
	gathered := x.ph.daemon.Core().Stats().Gathering
	before, err := processor()
	if err != nil {
		return sample{}, err
	}
	res, err := x.dh.control.Pull(ctx, client.PullSpec{Plan: plan, Token: token, SourceAddress: x.ph.daemon.PeerAddress(), Capability: g.Capability, Unchecked: x.plain}, nil)
	if err != nil {
		return sample{}, err
	}
	after, err := processor()
	if err != nil {
		return sample{}, err
	}
	if _, err := x.dh.control.Commit(ctx, plan, token, "commit", 0); err != nil {
		return sample{}, err
	}
	total := time.Since(began)
	wire := time.Duration(res.WireMicros) * time.Microsecond
	return sample{bytes: source.shape.Bytes(), wire: wire, cpu: after - before, setup: total - wire, gather: x.ph.daemon.Core().Stats().Gathering - gathered,
		scatter: time.Duration(res.ScatterMicros) * time.Microsecond}, x.free(ctx, plan.Attempt)
}

// check compares a few pieces: a lane that moves nothing is no lane.
func (r *rig) check() error {
	for i := 0; i < len(r.pieces); i += max(len(r.pieces)/16, 1) {
		p, _ := r.shape.Place(uint32(i))
		n := uint64(p.Bytes)
		if !bytes.Equal(r.source.Bytes()[r.offsets[i]:r.offsets[i]+n], r.target.Bytes()[r.to[i]:r.to[i]+n]) {
			return fmt.Errorf("piece %d differs", i)
		}
	}
	return nil
}

// free ends the decode and gives both memories back.
func (x *pair) free(ctx context.Context, a handoff.Attempt) error {
	if err := x.d.FinishTarget(ctx, a); err != nil {
		return err
	}
	wait := func(e *client.Engine, k client.EventKind) error {
		for {
			select {
			case ev := <-e.Events():
				if ev.Kind == k && ev.Attempt == a {
					return nil
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	if err := errors.Join(wait(x.d, client.TargetDrained), wait(x.p, client.SourceDrained)); err != nil {
		return err
	}
	return errors.Join(x.d.Freed(ctx, a, false), x.p.Freed(ctx, a, true))
}
