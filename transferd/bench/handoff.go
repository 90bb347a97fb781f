package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
)

// pair is the two engines of a row.
type pair struct {
	r      *rig
	p, d   *client.Engine
	pid    handoff.EngineID
	did    handoff.EngineID
	ph, dh *host
	plain  bool // without checksums
}

// handoff moves everything; one moves one block, many times.
func (x *pair) handoff(ctx context.Context) (sample, error) {
	clear(x.r.target.Bytes()[:min(1<<16, len(x.r.target.Bytes()))])
	s, err := x.move(ctx, x.r.shape, len(x.r.pieces))
	if err != nil {
		return s, err
	}
	return s, x.r.check()
}

func (x *pair) one(ctx context.Context) (sample, error) {
	shape := x.r.shape
	shape.Groups = []handoff.Group{{Name: "one", Layers: 1, Blocks: 1, BlockBytes: 64 << 10}}
	var took []float64
	for range 200 {
		s, err := x.move(ctx, shape, 1)
		if err != nil {
			return s, err
		}
		took = append(took, float64(s.wire))
	}
	slices.Sort(took)
	return sample{bytes: 64 << 10, wire: time.Duration(median(took)), tail: time.Duration(took[len(took)*99/100])}, nil
}

// move is one whole handoff of the first n pieces, from open to freed, of which the
// pull is measured.
func (x *pair) move(ctx context.Context, shape handoff.Shape, n int) (sample, error) {
	r := x.r
	r.handed++
	plan := handoff.Plan{Attempt: handoff.Attempt{Handoff: handoff.HandoffID(fmt.Sprint("bench-", r.handed)), Epoch: 1, Nonce: 1},
		P:          handoff.Seat{Engine: x.pid, Node: x.p.Node(), Incarnation: x.p.Incarnation()},
		D:          handoff.Seat{Engine: x.did, Node: x.d.Node(), Incarnation: x.d.Incarnation()},
		BodyDigest: handoff.Digest{1}}
	began := time.Now()
	token, err := x.d.OpenTarget(ctx, client.TargetSpec{Plan: plan, Shape: shape, Offsets: r.to[:n]})
	if err != nil {
		return sample{}, err
	}
	g, err := x.p.OpenSource(ctx, client.SourceSpec{Plan: plan, Shape: shape, Offsets: r.offsets[:n]})
	if err != nil {
		return sample{}, err
	}
	if err := errors.Join(x.p.Announce(ctx, plan.Attempt, r.pieces[:n], r.digests[:n]), x.p.Seal(ctx, plan.Attempt)); err != nil {
		return sample{}, err
	}
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
	return sample{bytes: shape.Bytes(), wire: wire, cpu: after - before, setup: total - wire, scatter: time.Duration(res.ScatterMicros) * time.Microsecond}, x.free(ctx, plan.Attempt)
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
