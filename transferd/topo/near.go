package topo

import (
	"cmp"
	"slices"
)

// Distance is how far two PCI devices lie apart; less is nearer.
type Distance uint8

const (
	SameSwitch Distance = iota // below one PCI bridge or switch
	SameRoot                   // below one root complex
	SameNode                   // on one NUMA node
	AcrossNodes
	Unknown // one of them is not placed
)

func (d Distance) String() string {
	return [...]string{"same switch", "same root", "same node", "across nodes", "unknown"}[d]
}

// Apart measures.
func Apart(a, b Device) Distance {
	common := 0
	for common < len(a.path) && common < len(b.path) && a.path[common] == b.path[common] {
		common++
	}
	switch {
	case common > 1: // the first part is the root complex
		return SameSwitch
	case common == 1:
		return SameRoot
	case len(a.path) == 0 || len(b.path) == 0 || a.Node == NoNode || b.Node == NoNode:
		return Unknown
	case a.Node == b.Node:
		return SameNode
	}
	return AcrossNodes
}

// Rail is a NIC that a device's bytes may leave by.
type Rail struct {
	NIC      NIC
	Distance Distance
}

// Rails orders the NICs for a device's memory: RDMA first, then near ones, then
// fast ones. The first is preferred; the others are there when it fails.
func (h Host) Rails(d Device) []Rail {
	out := make([]Rail, 0, len(h.NICs))
	for _, n := range h.NICs {
		out = append(out, Rail{n, Apart(d, n.Device)})
	}
	slices.SortStableFunc(out, func(a, b Rail) int {
		return cmp.Or(cmp.Compare(plain(a), plain(b)), cmp.Compare(a.Distance, b.Distance), cmp.Compare(b.NIC.Mbps, a.NIC.Mbps))
	})
	return out
}

func plain(r Rail) int {
	if r.NIC.RDMA != "" {
		return 0
	}
	return 1
}
