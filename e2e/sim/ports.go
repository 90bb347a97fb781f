package sim

import (
	"context"
	"time"

	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/activities/ledger/memledger"
	"github.com/surehand/surehand/activities/mover"
	"github.com/surehand/surehand/contracts/handoff"
	transfer "github.com/surehand/surehand/transferd/client"
	"github.com/surehand/surehand/transferd/fence"
	"github.com/surehand/surehand/transferd/pull"
)

// engines is activities' way to engines, through the net.
type engines struct{ from *gateway }

// Engine implements engine.Directory.
func (d engines) Engine(address string) (engine.Engine, error) {
	return remoteEngine{s: d.from.s, from: d.from.life, at: address}, nil
}

type remoteEngine struct {
	engine.Engine
	s    *Sim
	from *life
	at   string
}

func (r remoteEngine) here() *engineSim {
	for _, h := range r.s.hosts {
		if h.engine.life.name == r.at {
			return h.engine
		}
	}
	return nil
}

func (r remoteEngine) Reserve(ctx context.Context, q engine.Reservation) (engine.Reserved, error) {
	return fetch(ctx, r.s, r.from, r.at, "reserve", q.Plan.Attempt, func(ctx context.Context) (engine.Reserved, error) {
		return r.here().reserve(ctx, q)
	})
}

func (r remoteEngine) Prefill(ctx context.Context, q engine.Prefill, opened func(engine.Opened), _ func(uint32)) (engine.Sealed, error) {
	return fetch(ctx, r.s, r.from, r.at, "prefill", q.Plan.Attempt, func(ctx context.Context) (engine.Sealed, error) {
		return r.here().prefill(ctx, q, opened)
	})
}

func (r remoteEngine) Attach(ctx context.Context, p handoff.Plan, token handoff.Token, from uint32, each func(engine.DecodeEvent) error) error {
	return r.s.call(ctx, r.from, r.at, "attach", p.Attempt, func(ctx context.Context) error {
		return r.here().attach(ctx, p.Attempt, token, from, func(ev engine.DecodeEvent) error {
			if r.s.post(&message{point: "token:answer", from: r.at, to: r.from.name, attempt: p.Attempt}) == lost {
				return unavailable("the stream broke")
			}
			if r.from.dead() {
				return unavailable("nobody reads")
			}
			return each(ev)
		})
	})
}

// movers is activities' way to daemons.
type movers struct{ from *gateway }

// Mover implements mover.Directory.
func (d movers) Mover(address string) (mover.Mover, error) {
	return remoteDaemon{d.from.s, d.from.life, address}, nil
}

type remoteDaemon struct {
	s    *Sim
	from *life
	at   string
}

func (r remoteDaemon) core() *fence.Core { return r.s.hosts[r.at].core() }

func (r remoteDaemon) Pull(ctx context.Context, q transfer.PullSpec, _ func(transfer.Progress)) (transfer.PullResult, error) {
	return fetch(ctx, r.s, r.from, r.at, "pull", q.Plan.Attempt, func(ctx context.Context) (transfer.PullResult, error) {
		run, err := r.s.hosts[r.at].now.Load().puller.Pull(pull.Spec{Plan: q.Plan, Token: q.Token, SourceAddress: q.SourceAddress, Capability: q.Capability})
		if err != nil {
			return transfer.PullResult{}, err
		}
		select {
		case <-run.Done():
			p, err := run.Result()
			return transfer.PullResult{Bytes: p.Bytes, Pieces: p.Pieces, Lane: p.Lane, Manifest: p.Manifest, Repulled: p.Repulled}, err
		case <-ctx.Done():
			return transfer.PullResult{}, unavailable("the asker left the pull")
		}
	})
}

func (r remoteDaemon) Commit(ctx context.Context, p handoff.Plan, t handoff.Token, _ handoff.OperationID, lease time.Duration) (transfer.TargetAnswer, error) {
	answered := r.s.owns("commit", r.at, p.Attempt)
	out, err := fetch(ctx, r.s, r.from, r.at, "commit", p.Attempt, func(context.Context) (transfer.TargetAnswer, error) {
		ans, err := r.core().Commit(p, t, lease)
		r.s.committed(p.Attempt, r.at, ans, err)
		return transfer.TargetAnswer{State: ans.State, Token: ans.Token}, err
	})
	answered(out.State, err)
	return out, err
}

func (r remoteDaemon) Undo(ctx context.Context, p handoff.Plan, _ handoff.OperationID, sides transfer.Sides) (transfer.CloseAnswer, error) {
	return r.close(ctx, "undo", p, sides, func() (fence.Closing, error) { return r.core().Undo(p, fence.Sides(sides)) })
}

func (r remoteDaemon) Release(ctx context.Context, p handoff.Plan, _ handoff.OperationID, sides transfer.Sides) (transfer.CloseAnswer, error) {
	return r.close(ctx, "release", p, sides, func() (fence.Closing, error) { return r.core().Release(p, fence.Sides(sides)) })
}

func (r remoteDaemon) close(ctx context.Context, op string, p handoff.Plan, sides transfer.Sides, do func() (fence.Closing, error)) (transfer.CloseAnswer, error) {
	side := "-target"
	if sides.Source {
		side = "-source"
	}
	answered := func(handoff.TargetState, error) {}
	if sides.Target {
		answered = r.s.owns(op, r.at, p.Attempt)
	}
	out, err := fetch(ctx, r.s, r.from, r.at, op+side, p.Attempt, func(context.Context) (transfer.CloseAnswer, error) {
		c, err := do()
		if err == nil && sides.Target && c.Target == handoff.TargetClosed {
			r.s.refused(p.Attempt)
		}
		return transfer.CloseAnswer{Target: c.Target, Source: c.Source, Validated: c.Validated, Drained: c.Drained, Token: c.Token}, err
	})
	answered(out.Target, err)
	return out, err
}

func (r remoteDaemon) Renew(ctx context.Context, targets, sources []handoff.Attempt, lease time.Duration) ([]handoff.Attempt, error) {
	var a handoff.Attempt
	for _, x := range append(targets[:len(targets):len(targets)], sources...) {
		a = x
	}
	return fetch(ctx, r.s, r.from, r.at, "renew", a, func(context.Context) ([]handoff.Attempt, error) {
		return r.core().Renew(targets, sources, lease, 0)
	})
}

func (r remoteDaemon) Describe(context.Context, bool) (*transferv1.Description, error) {
	return nil, unavailable("nobody asks here")
}

// remoteLedger is the ledger, through the net.
type remoteLedger struct {
	*memledger.Ledger
	s    *Sim
	from *life
}

func (r remoteLedger) do(ctx context.Context, op string, a handoff.Attempt, fn func(context.Context) error) error {
	return r.s.call(ctx, r.from, "r", op, a, fn)
}

func (r remoteLedger) Reserve(ctx context.Context, q ledger.ReserveRequest) error {
	return r.do(ctx, "promise", q.Attempt, func(ctx context.Context) error { return r.Ledger.Reserve(ctx, q) })
}

func (r remoteLedger) Release(ctx context.Context, e handoff.EngineID, a handoff.Attempt) error {
	return r.do(ctx, "unpromise", a, func(ctx context.Context) error { return r.Ledger.Release(ctx, e, a) })
}

func (r remoteLedger) Renew(ctx context.Context, e handoff.EngineID, as []handoff.Attempt, lease time.Duration) ([]handoff.Attempt, error) {
	return fetch(ctx, r.s, r.from, "r", "renew-promise", as[0], func(ctx context.Context) ([]handoff.Attempt, error) {
		return r.Ledger.Renew(ctx, e, as, lease)
	})
}

func (r remoteLedger) Claim(ctx context.Context, q ledger.ClaimRequest) (ledger.ClaimAnswer, error) {
	return fetch(ctx, r.s, r.from, "r", "claim", handoff.Attempt{}, func(ctx context.Context) (ledger.ClaimAnswer, error) {
		return r.Ledger.Claim(ctx, q)
	})
}

func (r remoteLedger) Settle(ctx context.Context, q ledger.SettleRequest) error {
	return r.do(ctx, "settle", handoff.Attempt{}, func(ctx context.Context) error { return r.Ledger.Settle(ctx, q) })
}

func (r remoteLedger) Unclaim(ctx context.Context, tenant, key string, h handoff.HandoffID) error {
	return r.do(ctx, "unclaim", handoff.Attempt{}, func(ctx context.Context) error { return r.Ledger.Unclaim(ctx, tenant, key, h) })
}

func (r remoteLedger) Cancelled(ctx context.Context, h handoff.HandoffID) (bool, error) {
	return fetch(ctx, r.s, r.from, "r", "ask-cancelled", handoff.Attempt{}, func(ctx context.Context) (bool, error) {
		return r.Ledger.Cancelled(ctx, h)
	})
}

func (r remoteLedger) MarkCancelled(ctx context.Context, h handoff.HandoffID, ttl time.Duration) error {
	return r.do(ctx, "mark-cancelled", handoff.Attempt{}, func(ctx context.Context) error { return r.Ledger.MarkCancelled(ctx, h, ttl) })
}
