package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// write replaces the version file whole: after a crash it is the old or the
// new one, never half of either.
func (d *Dir) write(r record) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	draft, err := os.CreateTemp(d.path, versionFile+".*")
	if err != nil {
		return fmt.Errorf("write the version file: %w", err)
	}
	_, err = draft.Write(append(text, '\n'))
	err = errors.Join(err, draft.Sync(), draft.Close())
	if err == nil {
		err = os.Rename(draft.Name(), filepath.Join(d.path, versionFile))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write the version file: %w", err), os.Remove(draft.Name()))
	}
	return d.sync()
}

// sync makes the directory's own entries durable.
func (d *Dir) sync() error {
	directory, err := os.Open(d.path)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}

// removeFiles removes the databases of an interrupted set-up.
func (d *Dir) removeFiles() error {
	for _, path := range []string{d.Main(), d.Visibility()} {
		for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
			if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return d.sync()
}
