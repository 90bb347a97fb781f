// Package datadir owns the directory the embedded server keeps its histories
// in: one server at a time, and only files that this very server version made.
//
// The server's SQLite schema is not migrated from one version to the next, and
// a server on a foreign schema fails late and obscurely. So a small file says
// which version made the schema, and any other version refuses to start.
package datadir

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

var (
	// ErrInUse means another server has this directory open.
	ErrInUse = errors.New("the data directory is in use")
	// ErrOtherVersion means the schema was made by another server version.
	ErrOtherVersion = errors.New("the data was made by another server version")
	// ErrUnknownOrigin means database files are there that nothing vouches for.
	ErrUnknownOrigin = errors.New("the data is of unknown origin")
)

const (
	lockFile       = "lock"
	versionFile    = "version.json"
	mainFile       = "temporal.db"
	visibilityFile = "visibility.db"

	directoryMode   = 0o700 // histories are for their owner alone
	fileMode        = 0o600
	maxVersionBytes = 4 << 10

	lockEvery = 20 * time.Millisecond // how often a taken lock is tried again
)

// Made names what made the files; two servers may share files only if equal.
type Made struct {
	Server     string `json:"server"`
	Schema     string `json:"schema"`
	Visibility string `json:"visibility"`
	Shards     int    `json:"shards"`
}

// record is version.json. Complete is false from before the first table is
// made until after the last: a crash in between leaves files that no server
// has ever run on, which may be made anew.
type record struct {
	Made
	Complete bool `json:"complete"`
}

// Dir is a data directory this process holds.
type Dir struct {
	path string
	lock *os.File
}

// Open creates the directory when missing and takes its lock, which ends with
// the process however that ends. It waits for the lock until ctx ends: the
// server of a caller that was killed and runs again takes a moment to stop.
func Open(ctx context.Context, path string) (*Dir, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(absolute, directoryMode); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(absolute, lockFile), os.O_CREATE|os.O_RDWR, fileMode)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the data directory: %w", err)
	}
	if err := take(ctx, lock); err != nil {
		return nil, errors.Join(fmt.Errorf("lock the data directory %s: %w", absolute, err), lock.Close())
	}
	return &Dir{path: absolute, lock: lock}, nil
}

func take(ctx context.Context, lock *os.File) error {
	ticker := time.NewTicker(lockEvery)
	defer ticker.Stop()
	for {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w by another server: stop that one, or name another --data", ErrInUse)
		case <-ticker.C:
		}
	}
}

// Main is the file of the histories, Visibility that of the list of workflows.
func (d *Dir) Main() string       { return filepath.Join(d.path, mainFile) }
func (d *Dir) Visibility() string { return filepath.Join(d.path, visibilityFile) }

// Close releases the directory.
func (d *Dir) Close() error { return d.lock.Close() }

// Prepare makes the schema when it is missing, by calling create, and refuses
// files that another version made. Done again after a crash it does the same.
func (d *Dir) Prepare(mine Made, create func() error) error {
	found, err := d.read()
	if errors.Is(err, fs.ErrNotExist) {
		if err := d.refuseStrangers(); err != nil {
			return err
		}
		return d.make(mine, create)
	}
	if err != nil {
		return err
	}
	if found.Made != mine {
		return fmt.Errorf("%w: %s was made by server %s (schema %s, visibility %s, %d shards), this is server %s (schema %s, visibility %s, %d shards); "+
			"SQLite data is not migrated between versions: name another --data, delete this one if its histories may go, "+
			"or run the surehand-temporal that made it", ErrOtherVersion, d.path,
			found.Server, found.Schema, found.Made.Visibility, found.Shards,
			mine.Server, mine.Schema, mine.Visibility, mine.Shards)
	}
	if !found.Complete {
		if err := d.removeFiles(); err != nil {
			return err
		}
		return d.make(mine, create)
	}
	return d.requireFiles()
}

func (d *Dir) make(mine Made, create func() error) error {
	if err := d.write(record{Made: mine}); err != nil {
		return err
	}
	if err := create(); err != nil {
		return fmt.Errorf("make the schema: %w", err)
	}
	return d.write(record{Made: mine, Complete: true})
}

func (d *Dir) read() (record, error) {
	var found record
	path := filepath.Join(d.path, versionFile)
	info, err := os.Stat(path)
	if err != nil {
		return found, err
	}
	if info.Size() > maxVersionBytes {
		return found, fmt.Errorf("%w: %s is too large to be ours", ErrUnknownOrigin, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return found, err
	}
	if err := json.Unmarshal(text, &found); err != nil {
		return found, fmt.Errorf("%w: %s cannot be read (%w); name another --data", ErrUnknownOrigin, path, err)
	}
	return found, nil
}

// refuseStrangers makes sure that no database is there without a version file.
func (d *Dir) refuseStrangers() error {
	for _, path := range []string{d.Main(), d.Visibility()} {
		_, err := os.Stat(path)
		if err == nil {
			return fmt.Errorf("%w: %s is there, but no %s says which server made it; name another --data", ErrUnknownOrigin, path, versionFile)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// requireFiles makes sure that a lost file is not taken for an empty one.
func (d *Dir) requireFiles() error {
	for _, path := range []string{d.Main(), d.Visibility()} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%w: %s says the schema is complete, but a file is lost (%w); name another --data", ErrUnknownOrigin, versionFile, err)
		}
	}
	return nil
}
