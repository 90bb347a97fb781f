package fence

import (
	"github.com/surehand/surehand/contracts/capability"
	"github.com/surehand/surehand/contracts/handoff"
)

// EventCrossing is a right or a block of one tenant that was claimed for another.
const EventCrossing = "crossing"

// tenancy is whose state lies in a block, for as long as a grant pins it.
type tenancy struct {
	tenant handoff.Digest // zero: nobody said
	grants int
}

// occupy and vacate count the grants on a block.
func (e *Engine) occupy(b uint32, tenant handoff.Digest) {
	if e.tenants == nil {
		e.tenants = map[uint32]*tenancy{}
	}
	t := e.tenants[b]
	if t == nil {
		t = &tenancy{tenant: tenant}
		e.tenants[b] = t
	}
	t.grants++
}

func (e *Engine) vacate(b uint32) {
	if t := e.tenants[b]; t != nil {
		if t.grants--; t.grants == 0 {
			delete(e.tenants, b)
		}
	}
}

// foreign finds a block of s that is pinned for another tenant (S16).
func (e *Engine) foreign(s SourceSpec) (block uint32, ok bool) {
	for _, b := range s.Blocks {
		if t := e.tenants[b]; t != nil && areTwo(t.tenant, s.Tenant) {
			return b, true
		}
	}
	return 0, false
}

func areTwo(a, b handoff.Digest) bool {
	nobody := handoff.Digest{}
	return a != nobody && b != nobody && a != b
}

// crossing refuses an attempt that reached for another tenant's memory.
func (c *Core) crossing(a handoff.Attempt, why error) error {
	return c.told(Event{Machine: machineSource, Attempt: a, Name: EventCrossing}, why)
}

// denied tells of a capability that was not accepted for a, and says more when it is
// a true one of another tenant's source.
func (c *Core) denied(a handoff.Attempt, token []byte, why error) error {
	if of, ok := capability.Authentic(c.key, token); ok && of != a {
		own, other := c.lent[a], c.lent[of]
		if own != nil && other != nil && areTwo(own.tenant, other.tenant) {
			return c.crossing(a, why)
		}
	}
	return c.refused(machineSource, a, "read", why)
}
