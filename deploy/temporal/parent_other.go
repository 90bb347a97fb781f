//go:build !linux

package main

import "errors"

const (
	noParent  = -1 // outlive whoever started us
	anyParent = 0  // whoever the parent is by now
)

// dieWithParent needs Linux: elsewhere the caller has to stop this process.
func dieWithParent(parent int) error {
	if parent == noParent {
		return nil
	}
	return errors.New("--die-with-parent works on Linux only")
}
