package native

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrLocked means that another process holds the lock.
var ErrLocked = errors.New("held by another process")

// Lock takes an exclusive lock on f that ends with the process.
func Lock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return ErrLocked
	}
	return err
}

// ParentGone gives a channel that is closed when the process that started this
// one ends. It watches a pidfd, because a parent-death signal follows the
// parent's thread and Go's threads come and go.
func ParentGone() (<-chan struct{}, error) {
	parent := os.Getppid()
	fd, err := unix.PidfdOpen(parent, 0)
	if err != nil {
		return nil, fmt.Errorf("watch parent %d: %w", parent, err)
	}
	if os.Getppid() != parent { // it ended before the descriptor was opened
		return nil, errors.Join(errors.New("the parent process is gone already"), unix.Close(fd))
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		polls := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for {
			if n, err := unix.Poll(polls, -1); n > 0 || (err != nil && err != unix.EINTR) {
				return // the descriptor lives as long as this process
			}
		}
	}()
	return gone, nil
}
