package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	schedOther = 0 // SCHED_OTHER of sched(7), which x/sys does not name on every architecture
	threadsDir = "/proc/self/task"
)

// yield makes every thread of this process, and so every later one, a batch thread
// of the nice level (sched(7)): it takes its share of the processors, but whoever
// wakes up to move a token goes first. A level that is higher already stays, and
// so does another policy than the ordinary one. It needs no privilege.
func yield(nice int) error {
	if nice == 0 {
		return nil
	}
	for changed := true; changed; { // a thread begun by one that was not changed yet is found by the next pass
		changed = false
		threads, err := os.ReadDir(threadsDir)
		if err != nil {
			return fmt.Errorf("list the threads: %w", err)
		}
		for _, t := range threads {
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				return fmt.Errorf("thread %q: %w", t.Name(), err)
			}
			one, err := yieldThread(id, nice)
			if err != nil && !errors.Is(err, unix.ESRCH) { // it ended meanwhile
				return fmt.Errorf("thread %d to be a batch thread of level %d: %w", id, nice, err)
			}
			changed = changed || one
		}
	}
	return nil
}

func yieldThread(id, nice int) (changed bool, err error) {
	attr, err := unix.SchedGetAttr(id, 0)
	if err != nil || attr.Policy != schedOther {
		return false, err
	}
	return true, unix.SchedSetAttr(id, &unix.SchedAttr{Policy: unix.SCHED_BATCH, Nice: max(attr.Nice, int32(nice))}, 0)
}
