package topo

import (
	"fmt"
	"strings"
)

// Picture draws the host as text: each NUMA node with what hangs on it, each
// GPU's rails in the order of preference, then what is absent.
func (h Host) Picture() string {
	var b strings.Builder
	for _, n := range h.Nodes {
		fmt.Fprintf(&b, "node %d   CPUs %s   %s\n", n.ID, n.CPUs, size(n.Bytes))
		h.devices(&b, n.ID)
	}
	if h.on(NoNode) > 0 {
		b.WriteString("no node\n")
		h.devices(&b, NoNode)
	}
	for i, g := range h.GPUs {
		fmt.Fprintf(&b, "rails of GPU %d\n", i)
		for _, r := range h.Rails(g.Device) {
			fmt.Fprintf(&b, "  %-10s %-8s %s\n", r.NIC.Name, lane(r.NIC), r.Distance)
		}
	}
	for _, a := range h.Absent {
		fmt.Fprintf(&b, "absent   %s\n", a)
	}
	return b.String()
}

func lane(n NIC) string {
	if n.RDMA != "" {
		return "rdma"
	}
	return "tcp"
}

// on counts a node's devices.
func (h Host) on(node int) int {
	count := 0
	for _, g := range h.GPUs {
		if g.Node == node {
			count++
		}
	}
	for _, n := range h.NICs {
		if n.Node == node {
			count++
		}
	}
	return count
}

func (h Host) devices(b *strings.Builder, node int) {
	left := h.on(node)
	line := func(format string, args ...any) {
		branch := "├─"
		if left--; left == 0 {
			branch = "└─"
		}
		b.WriteString(strings.TrimRight(branch+" "+fmt.Sprintf(format, args...), " ") + "\n")
	}
	for i, g := range h.GPUs {
		if g.Node == node {
			line("GPU %d  %s  %s  pci %s%s", i, g.Name, size(g.Bytes), g.PCI, links(g.Links))
		}
	}
	for _, n := range h.NICs {
		if n.Node == node {
			line("NIC %s  %s  %s  pci %s%s", n.Name, n.Driver, speed(n), n.PCI, device(n.RDMA))
		}
	}
}

func size(bytes uint64) string {
	if bytes == 0 {
		return "size unknown"
	}
	return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
}

func speed(n NIC) string {
	state := ""
	if !n.Up {
		state = ", down"
	}
	if n.Mbps == 0 {
		return "speed unknown" + state
	}
	return fmt.Sprintf("%g Gb/s", float64(n.Mbps)/1000) + state
}

func links(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("  %d NVLinks", n)
}

func device(rdma string) string {
	if rdma == "" {
		return ""
	}
	return "  rdma " + rdma
}
