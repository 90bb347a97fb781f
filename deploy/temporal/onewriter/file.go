package onewriter

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Limits of one commit. Whoever takes part waits for the rest, so a group is
// closed when it is large or old, though more are waiting to join.
const (
	groupMost = 64
	groupAge  = 4 * time.Millisecond
)

// errLost says that SQLite rolled back the transaction that a group shared.
var errLost = errors.New("onewriter: the shared transaction was rolled back")

// sqlite is what a connection of the driver beneath can do.
type sqlite interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Validator
}

// file is one database file and the one connection to it. Who has the turn may
// use the rest.
type file struct {
	views   int           // under the driver's lock
	turn    chan struct{} // holds one token while somebody has the turn
	waiting atomic.Int32  // callers that wait for the turn
	sqlite  sqlite
	kept    map[string]*kept
	gather  time.Duration
	group   *group // of the open transaction; nil: none is open
	commits int    // so far, for tests
}

// group is who shares one transaction of SQLite's, each a savepoint in it.
type group struct {
	began time.Time
	size  int
	done  chan struct{} // closed after the commit
	err   error         // of the commit; to be read after done
}

func newFile(under sqlite, gather time.Duration) *file {
	return &file{turn: make(chan struct{}, 1), sqlite: under, kept: map[string]*kept{}, gather: gather}
}

// enter waits for the turn. It is not given up half-way: turns are short, and
// the last in the row is the one who commits.
func (f *file) enter() {
	f.waiting.Add(1)
	f.turn <- struct{}{}
	f.waiting.Add(-1)
}

// leave passes the turn on, after the commit if it is due.
func (f *file) leave() {
	if f.group != nil && f.due() {
		f.commit()
	}
	<-f.turn
}

func (f *file) due() bool {
	if f.group.size >= groupMost {
		return true
	}
	age := time.Since(f.group.began)
	if f.gather > 0 {
		return age >= f.gather
	}
	return f.waiting.Load() == 0 || age >= groupAge
}

// begin opens the shared transaction if none is open, and a savepoint in it.
func (f *file) begin() error {
	if f.group == nil {
		if err := f.run("begin"); err != nil {
			return err
		}
		f.group = &group{began: time.Now(), done: make(chan struct{})}
		if f.gather > 0 {
			g := f.group
			time.AfterFunc(f.gather, func() { f.commitLate(g) })
		}
	}
	return f.run("savepoint one")
}

// commitLate commits a group that waited for others.
func (f *file) commitLate(g *group) {
	f.enter()
	if f.group == g {
		f.commit()
	}
	<-f.turn
}

// keep ends the savepoint and joins the group; the caller leaves and waits.
func (f *file) keep() (*group, error) {
	if err := f.run("release one"); err != nil {
		return nil, errors.Join(err, f.undo())
	}
	return f.join(), nil
}

func (f *file) join() *group {
	f.group.size++
	return f.group
}

// undo takes back what was done since the savepoint. Where SQLite has rolled
// back everything already, as on a full disk, the whole group is lost.
func (f *file) undo() error {
	err := f.run("rollback to one")
	if err == nil {
		err = f.run("release one")
	}
	if err != nil {
		_ = f.run("rollback") // refused where nothing is open any more
		f.end(fmt.Errorf("%w: %w", errLost, err))
	}
	return err
}

// commit makes the group durable, or fails it whole.
func (f *file) commit() {
	err := f.run("commit")
	if err != nil {
		_ = f.run("rollback") // as above
	}
	f.commits++
	f.end(err)
}

func (f *file) end(err error) {
	f.group.err = err
	close(f.group.done)
	f.group = nil
}

func (f *file) run(text string) error {
	_, err := f.exec(context.Background(), text, nil)
	return err
}

// wait returns once the group is durable.
func (g *group) wait() error {
	<-g.done
	return g.err
}

// close forgets the statements first: SQLite closes no connection that has some.
func (f *file) close() error {
	f.enter()
	var errs []error
	for _, k := range f.kept {
		errs = append(errs, k.statement.Close())
	}
	errs = append(errs, f.sqlite.Close())
	<-f.turn
	return errors.Join(errs...)
}
