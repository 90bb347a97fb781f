package handoff

import (
	"math"
	"slices"
	"time"
)

// Capacity is the ledger's account of one engine: a set keyed by attempt, so
// that a release that comes first, or twice, cannot invent room (rule 16). Free
// is always derived. Not safe for concurrent use.
type Capacity struct {
	Total   uint32  // blocks
	Omit    Omitted // only the explorer sets it
	entries map[Attempt]Held
	extra   uint32 // what a mutant's counter was given back too often
}

// Held is one attempt's promise of blocks until End.
type Held struct {
	Blocks uint32
	End    Instant
}

// Reserve promises blocks to a until now+lease; a repeat changes nothing but
// the lease. CodeCapacity when there is no room for the whole.
func (c *Capacity) Reserve(now Instant, a Attempt, blocks uint32, lease time.Duration) error {
	c.Expire(now)
	if h, ok := c.entries[a]; ok {
		h.End = max(h.End, now+lease)
		c.entries[a] = h
		return nil
	}
	if blocks == 0 {
		return Errorf(CodeInvalid, "a promise of no blocks")
	}
	if free := c.Free(); blocks > free {
		return Errorf(CodeCapacity, "%d blocks wanted, %d of %d free", blocks, free, c.Total)
	}
	if c.entries == nil {
		c.entries = map[Attempt]Held{}
	}
	c.entries[a] = Held{blocks, now + lease}
	return nil
}

// Release gives a's blocks back and says whether it held any.
func (c *Capacity) Release(a Attempt) bool {
	_, ok := c.entries[a]
	delete(c.entries, a)
	if !ok && c.Omit.Has(RuleCapacitySet) {
		c.extra++ // a counter goes up whoever gives back
	}
	return ok
}

// Renew prolongs a's promise and says whether it is held.
func (c *Capacity) Renew(now Instant, a Attempt, lease time.Duration) bool {
	h, ok := c.entries[a]
	if ok {
		h.End = max(h.End, now+lease)
		c.entries[a] = h
	}
	return ok
}

// Expire drops promises whose lease ended, in the order of their attempts.
func (c *Capacity) Expire(now Instant) []Attempt {
	var out []Attempt
	for a, h := range c.entries {
		if h.End <= now {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, Attempt.Compare)
	for _, a := range out {
		delete(c.entries, a)
	}
	return out
}

// Rebuild takes over TD's list: what TD holds is held, what it does not know
// keeps its lease and ends with it (TD wins, rule 16).
func (c *Capacity) Rebuild(now Instant, td map[Attempt]uint32, lease time.Duration) {
	if c.entries == nil {
		c.entries = map[Attempt]Held{}
	}
	for a, blocks := range td {
		c.entries[a] = Held{blocks, now + lease}
	}
}

// Used is the number of promised blocks.
func (c *Capacity) Used() uint32 {
	var n uint64
	for _, h := range c.entries {
		n += uint64(h.Blocks)
	}
	return uint32(min(n, math.MaxUint32))
}

// Free is what may still be promised; a rebuild can make Used exceed Total.
func (c *Capacity) Free() uint32 {
	if u := c.Used(); u < c.Total {
		return c.Total - u + c.extra
	}
	return c.extra
}

// Entries gives a copy of the set.
func (c *Capacity) Entries() map[Attempt]Held {
	out := make(map[Attempt]Held, len(c.entries))
	for a, h := range c.entries {
		out[a] = h
	}
	return out
}
