package topo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fake builds a sysfs of files and links.
func fake(t *testing.T, files map[string]string, links map[string]string) string {
	t.Helper()
	root := t.TempDir()
	at := func(path string) string {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		return full
	}
	for path, text := range files {
		if err := os.WriteFile(at(path), []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for path, to := range links {
		if err := os.Symlink(filepath.Join(root, to), at(path)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// twoNodes is a host with a GPU and a NIC below one switch of node 0, and
// another NIC on node 1.
func twoNodes(t *testing.T) string {
	const a, b = "sys/devices/pci0000:00/0000:00:01.0", "sys/devices/pci0000:80/0000:80:01.0"
	return fake(t, map[string]string{
		"sys/devices/system/node/node0/cpulist": "0-3", "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal: 2097152 kB",
		"sys/devices/system/node/node1/cpulist": "4-7", "sys/devices/system/node/online": "0-1",
		a + "/0000:02:00.0/class": "0x030200", a + "/0000:02:00.0/vendor": "0x10de", a + "/0000:02:00.0/device": "0x2335", a + "/0000:02:00.0/numa_node": "0",
		a + "/0000:03:00.0/class": "0x020700", a + "/0000:03:00.0/vendor": "0x15b3", a + "/0000:03:00.0/numa_node": "0",
		a + "/0000:03:00.0/net/ib0/speed": "400000", a + "/0000:03:00.0/net/ib0/operstate": "up", a + "/0000:03:00.0/infiniband/mlx5_0/node_type": "1",
		b + "/0000:81:00.0/class": "0x020000", b + "/0000:81:00.0/vendor": "0x8086", b + "/0000:81:00.0/numa_node": "1",
		b + "/0000:81:00.0/net/eth0/speed": "-1", b + "/0000:81:00.0/net/eth0/operstate": "down",
		"sys/class/net/lo/speed": "0",
	}, map[string]string{
		"sys/bus/pci/devices/0000:02:00.0": a + "/0000:02:00.0", "sys/bus/pci/devices/0000:03:00.0": a + "/0000:03:00.0", "sys/bus/pci/devices/0000:81:00.0": b + "/0000:81:00.0",
		"sys/class/net/ib0": a + "/0000:03:00.0/net/ib0", "sys/class/net/eth0": b + "/0000:81:00.0/net/eth0",
		a + "/0000:03:00.0/net/ib0/device": a + "/0000:03:00.0", b + "/0000:81:00.0/net/eth0/device": b + "/0000:81:00.0",
		a + "/0000:03:00.0/driver": "sys/bus/pci/drivers/mlx5_core",
	})
}

func TestDevicesArePlacedAndTheNearestRailIsPreferred(t *testing.T) {
	h := Read(twoNodes(t))
	if len(h.Nodes) != 2 || h.Nodes[0].Bytes != 2<<30 || len(h.GPUs) != 1 || len(h.NICs) != 2 {
		t.Fatalf("%+v", h)
	}
	g := h.GPUs[0]
	if g.PCI != "0000:02:00.0" || g.Node != 0 {
		t.Fatalf("%+v", g)
	}
	rails := h.Rails(g.Device)
	if rails[0].NIC.Name != "ib0" || rails[0].NIC.RDMA != "mlx5_0" || rails[0].NIC.Driver != "mlx5_core" || rails[0].Distance != SameSwitch ||
		rails[1].NIC.Name != "eth0" || rails[1].Distance != AcrossNodes {
		t.Fatalf("%+v", rails)
	}
	picture := h.Picture()
	for _, want := range []string{"node 0   CPUs 0-3   2.0 GiB", "├─ GPU 0", "└─ NIC ib0  mlx5_core  400 Gb/s", "speed unknown, down", "ib0        rdma     same switch"} {
		if !strings.Contains(picture, want) {
			t.Errorf("no %q in\n%s", want, picture)
		}
	}
	if strings.Contains(picture, "NIC lo") {
		t.Error("loopback is no hardware")
	}
}

func TestAHostWithNothingReportsWhatIsAbsent(t *testing.T) {
	h := Read(t.TempDir())
	picture := h.Picture()
	for _, want := range []string{"absent   NUMA", "absent   GPUs", "absent   RDMA", "absent   NVML"} {
		if !strings.Contains(picture, want) {
			t.Errorf("no %q in\n%s", want, picture)
		}
	}
}

func TestThisHostIsReadWithoutAnError(t *testing.T) {
	if h := Read("/"); h.Picture() == "" {
		t.Fatal("nothing at all")
	}
}
