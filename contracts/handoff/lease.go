package handoff

import (
	"container/heap"
	"time"
)

// Instant is monotonic time since the start of one process's life. It never
// crosses a process (rule 24).
type Instant = time.Duration

// HolderLease is how long a holder may act on a lease of d, counted from before
// it asked: it stops at HolderPercent of it, so that drift of 1 % and the
// answer's way cannot make holder and grantor disagree the unsafe way.
func HolderLease(d time.Duration) time.Duration { return d * HolderPercent / 100 }

// RenewEvery is the renewal interval of a lease of d.
func RenewEvery(d time.Duration) time.Duration { return d / RenewalShare }

// clampLease bounds a lease that was asked for; zero or less asks for usual.
func clampLease(d, usual time.Duration) time.Duration {
	if d <= 0 {
		d = usual
	}
	return min(max(d, LeaseMin), LeaseMax)
}

// leaseHeap sweeps leases in order of their end. A renewal only moves the
// record's own end; an entry that comes due before it is put back, so that the
// heap holds one entry a record, two once it was committed.
type leaseHeap []leaseEntry

type leaseEntry struct {
	end     Instant
	attempt Attempt
}

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].end < h[j].end }
func (h leaseHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *leaseHeap) Push(x any)        { *h = append(*h, x.(leaseEntry)) }
func (h *leaseHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

func (h *leaseHeap) set(end Instant, a Attempt) { heap.Push(h, leaseEntry{end, a}) }

// due pops every entry whose end is not after now.
func (h *leaseHeap) due(now Instant) []leaseEntry {
	var out []leaseEntry
	for h.Len() > 0 && (*h)[0].end <= now {
		out = append(out, heap.Pop(h).(leaseEntry))
	}
	return out
}

// next is the earliest end, false when no lease runs.
func (h leaseHeap) next() (Instant, bool) {
	if len(h) == 0 {
		return 0, false
	}
	return h[0].end, true
}
