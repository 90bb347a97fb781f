package activities

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
)

// RenewLeases prolongs what this process holds every lease/RenewalShare until
// ctx ends (rule 24): targets and sources at their daemons, promises in the
// ledger. Each daemon is asked on its own, so that a stuck one delays no other
// (L7). A lease that cannot be renewed ends: that is what it is for.
func (s *Steps) RenewLeases(ctx context.Context, lease time.Duration) {
	t := time.NewTicker(handoff.RenewEvery(lease))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			s.renew(ctx, lease)
		}
	}
}

type due struct {
	targets, sources []handoff.Attempt
}

func (s *Steps) renew(ctx context.Context, lease time.Duration) {
	daemons := map[string]*due{}
	promises := map[handoff.EngineID][]handoff.Attempt{}
	at := func(address string) *due {
		if daemons[address] == nil {
			daemons[address] = &due{}
		}
		return daemons[address]
	}
	for _, h := range s.Attempts.held(lease) {
		d, p := at(h.route.D.Control), at(h.route.P.Control)
		d.targets = append(d.targets, h.plan.Attempt)
		p.sources = append(p.sources, h.plan.Attempt)
		promises[h.plan.D.Engine] = append(promises[h.plan.D.Engine], h.plan.Attempt)
	}
	ctx, cancel := context.WithTimeout(ctx, handoff.RenewEvery(lease))
	defer cancel()
	var wg sync.WaitGroup
	for address, d := range daemons {
		wg.Go(func() { s.renewAt(ctx, address, d, lease) })
	}
	for engine, as := range promises {
		wg.Go(func() {
			for part := range slices.Chunk(as, renewMost) {
				if _, err := s.Ledger.Renew(ctx, engine, part, lease); err != nil {
					s.Observer.Step("renew-promise", handoff.CodeOf(err), 0)
				}
			}
		})
	}
	wg.Wait()
}

// renewMost bounds one renewal: what the ledger takes at once.
const renewMost = ledger.MaxRenewals

func (s *Steps) renewAt(ctx context.Context, address string, d *due, lease time.Duration) {
	m, err := s.Movers.Mover(address)
	if err != nil {
		s.Observer.Step("renew-lease", handoff.CodeOf(err), 0)
		return
	}
	for len(d.targets)+len(d.sources) > 0 {
		nt, ns := min(len(d.targets), renewMost), min(len(d.sources), renewMost)
		if _, err := m.Renew(ctx, d.targets[:nt], d.sources[:ns], lease); err != nil {
			s.Observer.Step("renew-lease", handoff.CodeOf(err), 0)
		}
		d.targets, d.sources = d.targets[nt:], d.sources[ns:]
	}
}
