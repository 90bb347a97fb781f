// Package store keeps what one transferd must not forget when it dies: which
// life it is in, and which engines were attached. The incarnation is written
// with fsync, file and folder, before the daemon serves; each start is one more, and a
// folder that was lost begins behind them all.
package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/internal/native"
)

const (
	lockName        = "lock"
	nodeName        = "node"
	incarnationName = "incarnation"
	enginesName     = "engines"

	maxFileBytes = 64 << 10
)

// Store is the data folder of one daemon, locked for this process: two daemons
// never share a life.
type Store struct {
	dir         string
	lock        *os.File
	Incarnation handoff.Incarnation // of this life
	Engines     []handoff.EngineID  // attached when the life before ended
}

// Open locks dir, checks that it belongs to node and begins the next life.
func Open(dir string, node handoff.NodeID) (*Store, error) {
	if err := handoff.ValidateID("node", string(node)); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	s := &Store{dir: dir, lock: lock}
	if err := s.begin(node); err != nil {
		return nil, errors.Join(fmt.Errorf("data folder %s: %w", dir, err), lock.Close())
	}
	return s, nil
}

func (s *Store) begin(node handoff.NodeID) error {
	if err := native.Lock(s.lock); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	owner, err := s.read(nodeName)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := s.write(nodeName, string(node)); err != nil {
			return err
		}
	case err != nil:
		return err
	case owner != string(node):
		return fmt.Errorf("it belongs to node %q, not %q", owner, node)
	}
	last, err := s.lastLife()
	if err != nil {
		return err
	}
	s.Incarnation = last + 1
	if err := s.readEngines(); err != nil {
		return err
	}
	return s.write(incarnationName, strconv.FormatUint(uint64(s.Incarnation), 10))
}

// lastLife of a new folder is the clock's microseconds: a node whose folder was lost
// begins behind every life that it had there, unless its clock was set back. A damaged
// number is refused: a life used twice would let stale plans through (M6b).
func (s *Store) lastLife() (handoff.Incarnation, error) {
	text, err := s.read(incarnationName)
	if errors.Is(err, fs.ErrNotExist) {
		return handoff.Incarnation(time.Now().UnixMicro()), nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("the incarnation %q is damaged; write one that is higher than any used before into %s", text, filepath.Join(s.dir, incarnationName))
	}
	return handoff.Incarnation(n), nil
}

func (s *Store) readEngines() error {
	text, err := s.read(enginesName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for id := range strings.FieldsSeq(text) {
		s.Engines = append(s.Engines, handoff.EngineID(id))
	}
	return nil
}

// SetEngines records who is attached, for the next life to wait for. It is a
// hint: without it an unknown attempt is called lost some moments too early.
func (s *Store) SetEngines(ids []handoff.EngineID) error {
	var b strings.Builder
	for _, id := range ids {
		fmt.Fprintln(&b, id)
	}
	return s.write(enginesName, b.String())
}

func (s *Store) read(name string) (string, error) {
	st, err := os.Stat(filepath.Join(s.dir, name))
	if err != nil {
		return "", err
	}
	if st.Size() > maxFileBytes {
		return "", fmt.Errorf("%s has %d bytes", name, st.Size())
	}
	b, err := os.ReadFile(filepath.Join(s.dir, name))
	return strings.TrimSpace(string(b)), err
}

// write replaces a file so that after a crash it is the old or the new one.
func (s *Store) write(name, text string) error {
	next := filepath.Join(s.dir, name+".next") // a leftover of a killed life is overwritten
	f, err := os.OpenFile(next, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, werr := f.WriteString(text + "\n")
	if err := errors.Join(werr, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(next))
	}
	if err := os.Rename(next, filepath.Join(s.dir, name)); err != nil {
		return errors.Join(err, os.Remove(next))
	}
	d, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Close lets another process have the folder.
func (s *Store) Close() error { return s.lock.Close() }
