package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

const (
	noParent  = -1 // outlive whoever started us
	anyParent = 0  // whoever the parent is by now
)

// errParentGone means that the parent ended before it could be watched.
var errParentGone = errors.New("the parent process is gone already")

// The kernel keeps the parent-death signal with the thread that asked for it,
// and Go's main thread is the one that lives as long as the process.
func init() { runtime.LockOSThread() }

// dieWithParent has the kernel send SIGTERM when the parent ends. A parent that
// ended before the request would go unnoticed, so it is looked at again after.
func dieWithParent(parent int) error {
	defer runtime.UnlockOSThread()
	if parent == noParent {
		return nil
	}
	if parent == anyParent {
		parent = os.Getppid()
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0); err != nil {
		return fmt.Errorf("ask to end with the parent: %w", err)
	}
	if now := os.Getppid(); now != parent {
		return fmt.Errorf("%w: expected parent %d, have %d", errParentGone, parent, now)
	}
	return nil
}
