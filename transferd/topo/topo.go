// Package topo reads what a host has that moves bytes: NUMA nodes, GPUs and
// NICs, and how far they lie from each other. The kernel's sysfs tells it all but
// the names and links of GPUs, which NVML adds in builds with the tag nvml (it
// needs cgo). What is not there is reported, never fatal: a machine without a
// driver loses nothing.
package topo

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// NoNode is the NUMA node of a device that the kernel places nowhere.
const NoNode = -1

// Node is one NUMA node.
type Node struct {
	ID    int
	CPUs  string // as the kernel lists them: 0-3,8
	Bytes uint64
}

// Device is what a GPU and a NIC have in common.
type Device struct {
	PCI  string // domain:bus:device.function; empty for none
	Node int
	path []string // PCI ancestors, the root first
}

// GPU is one accelerator.
type GPU struct {
	Device
	Name   string // of the driver, or the PCI ids
	Bytes  uint64 // of its memory; 0: not known
	Driver string
	Links  int // NVLinks that are up
}

// NIC is one network device.
type NIC struct {
	Device
	Name   string
	Driver string
	Mbps   int64  // 0: not known
	RDMA   string // its RDMA device; empty for none
	Up     bool
}

// Host is all of it.
type Host struct {
	Nodes  []Node
	GPUs   []GPU
	NICs   []NIC
	Absent []string // what was looked for and not found, with the reason
}

// Read looks at the sysfs under root, which is / outside tests.
func Read(root string) Host {
	s := sysfs{root}
	h := Host{Nodes: s.nodes(), GPUs: s.gpus(), NICs: s.nics()}
	if err := addNVML(&h); err != nil {
		h.Absent = append(h.Absent, "NVML: "+err.Error())
	}
	if len(h.Nodes) == 0 {
		h.Absent = append(h.Absent, "NUMA nodes: the kernel lists none")
	}
	if len(h.GPUs) == 0 {
		h.Absent = append(h.Absent, "GPUs: no PCI device of class display or 3D controller by a vendor of accelerators")
	}
	if !slices.ContainsFunc(h.NICs, func(n NIC) bool { return n.RDMA != "" }) {
		h.Absent = append(h.Absent, "RDMA: no network device has an RDMA device")
	}
	return h
}

// sysfs reads small files; one that is missing is empty.
type sysfs struct{ root string }

func (s sysfs) text(path ...string) string {
	b, err := os.ReadFile(filepath.Join(append([]string{s.root}, path...)...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (s sysfs) number(path ...string) (int64, bool) {
	n, err := strconv.ParseInt(s.text(path...), 0, 64)
	return n, err == nil
}

// list names a folder's entries, sorted.
func (s sysfs) list(path ...string) []string {
	entries, err := os.ReadDir(filepath.Join(append([]string{s.root}, path...)...))
	if err != nil {
		return nil
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (s sysfs) nodes() []Node {
	var out []Node
	for _, name := range s.list("sys/devices/system/node") {
		id, err := strconv.Atoi(strings.TrimPrefix(name, "node"))
		if err != nil || !strings.HasPrefix(name, "node") {
			continue
		}
		n := Node{ID: id, CPUs: s.text("sys/devices/system/node", name, "cpulist")}
		for line := range strings.Lines(s.text("sys/devices/system/node", name, "meminfo")) {
			if f := strings.Fields(line); len(f) >= 4 && f[2] == "MemTotal:" {
				kib, _ := strconv.ParseUint(f[3], 10, 64) // 0 when the kernel says something else
				n.Bytes = kib << 10
			}
		}
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b Node) int { return a.ID - b.ID })
	return out
}

// accelerators are the PCI vendors whose display and 3D controllers may hold KV.
var accelerators = map[int64]string{0x10de: "NVIDIA", 0x1002: "AMD", 0x8086: "Intel"}

func (s sysfs) gpus() []GPU {
	const dir = "sys/bus/pci/devices"
	var out []GPU
	for _, address := range s.list(dir) {
		class, _ := s.number(dir, address, "class")
		vendor, _ := s.number(dir, address, "vendor")
		name, known := accelerators[vendor]
		if c := class >> 8; !known || c != 0x0300 && c != 0x0302 && c != 0x0380 && c != 0x1200 {
			continue
		}
		model, _ := s.number(dir, address, "device")
		out = append(out, GPU{Device: s.device(filepath.Join(dir, address)), Name: fmt.Sprintf("%s %04x:%04x", name, vendor, model),
			Driver: s.driver(filepath.Join(dir, address))})
	}
	return out
}

func (s sysfs) nics() []NIC {
	const dir = "sys/class/net"
	var out []NIC
	for _, name := range s.list(dir) {
		at := filepath.Join(dir, name, "device")
		if _, err := os.Stat(filepath.Join(s.root, at)); err != nil {
			continue // no hardware: loopback, bridges, tunnels
		}
		n := NIC{Name: name, Device: s.device(at), Driver: s.driver(at), Up: s.text(dir, name, "operstate") == "up"}
		if speed, ok := s.number(dir, name, "speed"); ok && speed > 0 {
			n.Mbps = speed
		}
		n.RDMA = strings.Join(s.list(at, "infiniband"), ",")
		out = append(out, n)
	}
	return out
}

func (s sysfs) driver(at string) string {
	to, err := os.Readlink(filepath.Join(s.root, at, "driver"))
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}

// device places a device by the real path of its folder.
func (s sysfs) device(at string) Device {
	d := Device{Node: NoNode}
	full, err := filepath.EvalSymlinks(filepath.Join(s.root, at))
	if err != nil {
		return d
	}
	for _, part := range strings.Split(full, string(filepath.Separator)) {
		if isPCI(part) || strings.HasPrefix(part, "pci") && strings.Contains(part, ":") {
			d.path = append(d.path, part)
		}
	}
	if n := len(d.path); n > 0 && isPCI(d.path[n-1]) {
		d.PCI = d.path[n-1]
		if node, ok := s.number("sys/bus/pci/devices", d.PCI, "numa_node"); ok {
			d.Node = int(node)
		}
	}
	return d
}

// isPCI says whether part is like 0000:3b:00.0.
func isPCI(part string) bool {
	var domain, bus, device, function uint
	n, err := fmt.Sscanf(part, "%x:%x:%x.%x", &domain, &bus, &device, &function)
	return err == nil && n == 4
}
