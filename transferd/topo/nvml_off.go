//go:build !(cgo && nvml)

package topo

import "errors"

// addNVML has nothing to add in a build without NVML.
func addNVML(*Host) error {
	return errors.New("this build leaves it out; build with cgo and -tags nvml for names, memory and links of GPUs")
}
