package placement

import (
	"slices"

	"github.com/surehand/surehand/activities/ledger"
)

// Reason is why an engine, or a pair, cannot be chosen.
type Reason string

// In the order they are looked for: an engine refused for blocks alone could
// have served.
const (
	ReasonRole       Reason = "role"
	ReasonModel      Reason = "model"
	ReasonRevision   Reason = "revision"
	ReasonLayout     Reason = "layout"
	ReasonPinned     Reason = "pinned elsewhere"
	ReasonContext    Reason = "context"
	ReasonExcluded   Reason = "excluded"
	ReasonCordoned   Reason = "cordoned"
	ReasonBreaker    Reason = "breaker"
	ReasonNotRebuilt Reason = "not rebuilt"
	ReasonBlocks     Reason = "blocks"
	ReasonNoPair     Reason = "no pair"
	ReasonLink       Reason = "link breaker"
	ReasonProtocol   Reason = "peer protocol"
	ReasonSame       Reason = "same engine"
	ReasonDeadline   Reason = "deadline"
)

// side is P or D as filters see it.
type side struct {
	name   string
	serves func(ledger.Role) bool
	pin    func(Request) string
	decode bool
}

var (
	sideP = side{"prefill", ledger.Role.Prefills, func(r Request) string { return string(r.PinP) }, false}
	sideD = side{"decode", ledger.Role.Decodes, func(r Request) string { return string(r.PinD) }, true}
)

// refuse gives the first reason against e on this side, or none.
func (s side) refuse(r Request, f Fleet, e ledger.Registered) Reason {
	pin := s.pin(r)
	switch {
	case !s.serves(e.Role):
		return ReasonRole
	case e.Model != r.Model:
		return ReasonModel
	case r.Revision != "" && e.Revision != r.Revision:
		return ReasonRevision
	case len(e.Layout) == 0:
		return ReasonLayout
	case pin != "" && pin != string(e.ID):
		return ReasonPinned
	case r.ContextTokens > e.MaxTokens, s.decode && r.blocks(e) > uint64(e.Blocks):
		return ReasonContext
	case slices.Contains(r.Exclude, e.ID):
		return ReasonExcluded
	case e.Cordoned:
		return ReasonCordoned
	case f.Blocked != nil && f.Blocked.EngineBlocked(e.ID):
		return ReasonBreaker
	case s.decode && !e.Built:
		return ReasonNotRebuilt
	case s.decode && !fits(r, e):
		return ReasonBlocks
	}
	return ""
}

func fits(r Request, e ledger.Registered) bool {
	used, _ := occupied(e)
	return used+r.blocks(e) <= uint64(e.Blocks)
}

// refusePair gives the first reason against P and D together, or none.
func refusePair(f Fleet, p, d ledger.Registered) Reason {
	switch {
	case p.ID == d.ID:
		return ReasonSame
	case p.Revision != d.Revision:
		return ReasonRevision
	case f.plan(p, d).err != nil:
		return ReasonLayout
	case p.PeerProtocol != d.PeerProtocol && p.PeerProtocol != 0 && d.PeerProtocol != 0:
		return ReasonProtocol
	case f.Blocked != nil && f.Blocked.LinkBlocked(Link{p.ID, d.ID}):
		return ReasonLink
	}
	return ""
}
