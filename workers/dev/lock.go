package dev

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// ErrInUse means that another `surehand dev` runs on the same data.
var ErrInUse = errors.New("the data directory is in use")

// lockData holds the directory for as long as the file is open, so until the
// process ends, however that is. The children do not inherit it.
func lockData(dir string) (*os.File, error) {
	f, err := tryLock(filepath.Join(dir, "lock"))
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("%w by another surehand dev: %s; stop that one or name another --data", ErrInUse, dir)
	}
	return f, err
}

// tryLock takes the lock of a file, made when missing, or says at once with
// EWOULDBLOCK that another process has it.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
