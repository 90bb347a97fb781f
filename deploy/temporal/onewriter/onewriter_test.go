package onewriter

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open makes a file with a table of numbers, and gives a pool of views of it.
func open(t *testing.T, attributes string) (*sql.DB, *file) {
	t.Helper()
	dsn := "file:" + filepath.Join(t.TempDir(), "test.db") + "?mode=rwc&_pragma=journal_mode=wal&_pragma=synchronous=full" + attributes
	db, err := sql.Open(name, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	db.SetMaxOpenConns(callers)
	db.SetMaxIdleConns(callers)
	if _, err := db.Exec("create table numbers (n integer primary key)"); err != nil {
		t.Fatal(err)
	}
	s := drivers[name].(*standIn)
	s.mu.Lock()
	defer s.mu.Unlock()
	return db, s.files[dsn]
}

const callers = 32

func numbers(t *testing.T, db interface {
	QueryRow(string, ...any) *sql.Row
}) (n int) {
	t.Helper()
	if err := db.QueryRow("select count(*) from numbers").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// committed counts by a connection of its own, which sees what is committed only.
func committed(t *testing.T, f *file, dsn string) int {
	t.Helper()
	plain, err := drivers[name].(*standIn).under.Open(dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	found, err := plain.(driver.QueryerContext).QueryContext(t.Context(), "select count(*) from numbers", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	row := make([]driver.Value, 1)
	if err := found.Next(row); err != nil {
		t.Fatal(err)
	}
	return int(row[0].(int64))
}

func dsnOf(t *testing.T, f *file) string {
	t.Helper()
	s := drivers[name].(*standIn)
	s.mu.Lock()
	defer s.mu.Unlock()
	for dsn, x := range s.files {
		if x == f {
			plain, _, err := takeGather(dsn)
			if err != nil {
				t.Fatal(err)
			}
			return plain
		}
	}
	t.Fatal("the file is not open")
	return ""
}

func TestWhatIsAcknowledgedIsCommitted(t *testing.T) {
	db, f := open(t, "")
	dsn := dsnOf(t, f)
	var all sync.WaitGroup
	var acknowledged atomic.Int32
	for i := range callers {
		all.Go(func() {
			for k := range 20 {
				tx, err := db.Begin()
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := tx.Exec("insert into numbers values (?)", i*100+k); err != nil {
					t.Error(err)
				}
				if err := tx.Commit(); err != nil {
					t.Error(err)
				}
				acknowledged.Add(1)
			}
		})
	}
	stop := make(chan struct{})
	go func() { all.Wait(); close(stop) }()
	for looks := 0; ; looks++ {
		least := int(acknowledged.Load())
		if got := committed(t, f, dsn); got < least {
			t.Fatalf("%d are acknowledged, %d committed", least, got)
		}
		select {
		case <-stop:
			if got := committed(t, f, dsn); got != callers*20 || looks == 0 {
				t.Fatalf("%d committed in the end, after %d looks", got, looks)
			}
			return
		default:
		}
	}
}

func TestThoseWhoWaitShareACommit(t *testing.T) {
	db, f := open(t, "")
	f.enter() // so that all of them wait
	before := f.commits
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			if _, err := db.Exec("insert into numbers values (?)", i); err != nil {
				t.Error(err)
			}
		})
	}
	await(t, func() bool { return f.waiting.Load() == callers })
	f.leave()
	all.Wait()
	f.enter()
	defer f.leave()
	// More than one where a commit took longer than groupAge to be due.
	if got := f.commits - before; got < 1 || got > callers/2 {
		t.Errorf("%d commits for %d writes", got, callers)
	}
}

func TestOneAloneDoesNotWait(t *testing.T) {
	db, f := open(t, "")
	for i := range 3 {
		before := f.commits
		if _, err := db.Exec("insert into numbers values (?)", i); err != nil {
			t.Fatal(err)
		}
		if f.commits != before+1 {
			t.Fatalf("%d commits", f.commits-before)
		}
	}
}

func TestAFailureTakesBackItsOwnTransactionOnly(t *testing.T) {
	db, f := open(t, "")
	if _, err := db.Exec("insert into numbers values (1000)"); err != nil {
		t.Fatal(err)
	}
	f.enter()
	var all sync.WaitGroup
	var refused, undone atomic.Int32
	for i := range callers {
		all.Go(func() {
			if i%4 == 3 { // a transaction that its caller rolls back
				tx, err := db.Begin()
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := tx.Exec("insert into numbers values (?)", 2000+i); err != nil {
					t.Error(err)
				}
				if err := tx.Rollback(); err != nil {
					t.Error(err)
				}
				undone.Add(1)
				return
			}
			n := i
			if i%4 == 2 {
				n = 1000
			}
			_, err := db.Exec("insert into numbers values (?)", n)
			if n == 1000 {
				if err == nil || !strings.Contains(err.Error(), "UNIQUE") {
					t.Errorf("a second 1000: %v", err)
				}
				refused.Add(1)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	await(t, func() bool { return f.waiting.Load() == callers })
	f.leave()
	all.Wait()
	if refused.Load() != callers/4 || undone.Load() != callers/4 {
		t.Fatalf("%d refused, %d undone", refused.Load(), undone.Load())
	}
	if got := numbers(t, db); got != callers/2+1 {
		t.Errorf("%d numbers", got)
	}
}

func TestAReadAnswersOnceWhatItSawIsCommitted(t *testing.T) {
	db, f := open(t, "&_pragma="+Gather+"%3D30ms")
	dsn := dsnOf(t, f)
	wrote := make(chan error)
	go func() {
		_, err := db.Exec("insert into numbers values (1)")
		wrote <- err
	}()
	await(t, func() bool { f.enter(); defer func() { <-f.turn }(); return f.group != nil })
	if got := numbers(t, db); got != 1 {
		t.Fatalf("the read saw %d", got)
	}
	if got := committed(t, f, dsn); got != 1 {
		t.Fatal("the read answered before the commit")
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
}

func TestGatheredWritesShareACommit(t *testing.T) {
	db, f := open(t, "&_pragma="+Gather+"%3D200ms")
	before := f.commits
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if _, err := db.Exec("insert into numbers values (?)", i); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := f.commits - before; got > 4 {
		t.Errorf("%d commits for 8 writes at once", got)
	}
	if got := numbers(t, db); got != 8 {
		t.Errorf("%d numbers", got)
	}
}

func TestAStatementRunsAgainAmidItsOwnRows(t *testing.T) {
	db, _ := open(t, "")
	for i := range 3 {
		if _, err := db.Exec("insert into numbers values (?)", i); err != nil {
			t.Fatal(err)
		}
	}
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	outer, err := tx.Query("select n from numbers order by n")
	if err != nil {
		t.Fatal(err)
	}
	defer outer.Close()
	pairs := 0
	for outer.Next() {
		inner, err := tx.Query("select n from numbers order by n")
		if err != nil {
			t.Fatal(err)
		}
		for inner.Next() {
			pairs++
		}
		if err := errors.Join(inner.Err(), inner.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := outer.Err(); err != nil || pairs != 9 {
		t.Fatalf("%d pairs, %v", pairs, err)
	}
}

// failing is a connection whose commits fail, or whose transactions are rolled
// back by SQLite itself, as when a disk is full.
type failing struct {
	sqlite
	commit, lose atomic.Bool
}

type failingStatement struct {
	statement
	of   *failing
	text string
}

var errDisk = errors.New("disk I/O error")

func (c *failing) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	s, err := c.sqlite.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	return failingStatement{s.(statement), c, text}, nil
}

func (s failingStatement) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if s.text == "commit" && s.of.commit.Load() {
		return nil, errDisk
	}
	if strings.HasPrefix(s.text, "insert") && s.of.lose.Load() {
		if _, err := s.of.sqlite.ExecContext(ctx, "rollback", nil); err != nil {
			return nil, err
		}
		return nil, errDisk
	}
	return s.statement.ExecContext(ctx, args)
}

func spoil(f *file) *failing {
	f.enter()
	defer f.leave()
	c := &failing{sqlite: f.sqlite}
	f.sqlite = c
	for text, k := range f.kept {
		_ = k.statement.Close()
		delete(f.kept, text)
	}
	return c
}

func TestAFailedCommitFailsAllWhoSharedIt(t *testing.T) {
	db, f := open(t, "")
	c := spoil(f)
	c.commit.Store(true)
	f.enter()
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			if _, err := db.Exec("insert into numbers values (?)", i); !errors.Is(err, errDisk) {
				t.Errorf("told %v", err)
			}
		})
	}
	await(t, func() bool { return f.waiting.Load() == callers })
	f.leave()
	all.Wait()
	c.commit.Store(false)
	if got := numbers(t, db); got != 0 {
		t.Errorf("%d numbers", got)
	}
	if _, err := db.Exec("insert into numbers values (1)"); err != nil || numbers(t, db) != 1 {
		t.Errorf("afterwards: %v", err)
	}
}

func TestALostTransactionFailsAllWhoSharedIt(t *testing.T) {
	db, f := open(t, "")
	c := spoil(f)
	f.gather = time.Hour // the first waits for the second
	first := make(chan error)
	go func() {
		_, err := db.Exec("insert into numbers values (1)")
		first <- err
	}()
	await(t, func() bool { f.enter(); defer func() { <-f.turn }(); return f.group != nil && f.group.size == 1 })
	c.lose.Store(true)
	if _, err := db.Exec("insert into numbers values (2)"); !errors.Is(err, errDisk) {
		t.Errorf("who lost it was told %v", err)
	}
	if err := <-first; !errors.Is(err, errLost) {
		t.Errorf("who shared it was told %v", err)
	}
	c.lose.Store(false)
	if got := numbers(t, db); got != 0 {
		t.Errorf("%d numbers", got)
	}
}

func TestAGatherThatIsNoDurationIsRefused(t *testing.T) {
	for _, text := range []string{"x", "-1s"} {
		if _, _, err := takeGather("file:a?_pragma=" + Gather + "%3D" + text); !errors.Is(err, errGather) {
			t.Errorf("%s: %v", text, err)
		}
	}
	plain, gather, err := takeGather(fmt.Sprintf("file:a?_pragma=synchronous%%3Dfull&_pragma=%s%%3D5ms&mode=rwc", Gather))
	if err != nil || gather != 5*time.Millisecond || plain != "file:a?_pragma=synchronous%3Dfull&mode=rwc" {
		t.Errorf("%s %s %v", plain, gather, err)
	}
}

func await(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); {
		if time.Now().After(deadline) {
			t.Fatal("it did not come to be")
		}
		time.Sleep(100 * time.Microsecond)
	}
}
