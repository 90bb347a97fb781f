//go:build cgo && nvml

package topo

import (
	"errors"
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// addNVML names the GPUs that sysfs found, adds their memory and counts their
// links. The library is loaded at run time; without a driver the error says so.
func addNVML(h *Host) (err error) {
	if r := nvml.Init(); r != nvml.SUCCESS {
		return errors.New(nvml.ErrorString(r))
	}
	defer func() {
		if r := nvml.Shutdown(); err == nil && r != nvml.SUCCESS {
			err = errors.New(nvml.ErrorString(r))
		}
	}()
	count, r := nvml.DeviceGetCount()
	if r != nvml.SUCCESS {
		return errors.New(nvml.ErrorString(r))
	}
	for i := range count {
		d, r := nvml.DeviceGetHandleByIndex(i)
		if r != nvml.SUCCESS {
			return fmt.Errorf("GPU %d: %s", i, nvml.ErrorString(r))
		}
		describe(h, d)
	}
	return nil
}

// describe fills in what NVML tells; a question that a GPU does not answer leaves
// the field as it is.
func describe(h *Host, d nvml.Device) {
	pci, r := d.GetPciInfo()
	if r != nvml.SUCCESS {
		return
	}
	address := fmt.Sprintf("%04x:%02x:%02x.0", pci.Domain, pci.Bus, pci.Device)
	g := h.gpu(address)
	if name, r := d.GetName(); r == nvml.SUCCESS {
		g.Name = strings.TrimSpace(name)
	}
	if m, r := d.GetMemoryInfo(); r == nvml.SUCCESS {
		g.Bytes = m.Total
	}
	for link := range nvml.NVLINK_MAX_LINKS {
		if state, r := d.GetNvLinkState(link); r == nvml.SUCCESS && state == nvml.FEATURE_ENABLED {
			g.Links++
		}
	}
}

// gpu gives the GPU at address; one that sysfs hides (in a container) is added.
func (h *Host) gpu(address string) *GPU {
	for i := range h.GPUs {
		if h.GPUs[i].PCI == address {
			return &h.GPUs[i]
		}
	}
	h.GPUs = append(h.GPUs, GPU{Device: Device{PCI: address, Node: NoNode}})
	return &h.GPUs[len(h.GPUs)-1]
}
