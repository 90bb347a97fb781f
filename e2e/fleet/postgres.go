package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// ErrNoPostgres says that there is none to run.
var ErrNoPostgres = errors.New("needs PostgreSQL; Debian's package is called postgresql")

// database is a PostgreSQL of the fleet's own, durable as one comes.
type database struct{ url, dir, bin string }

// PostgresPrograms names the folder of PostgreSQL's programs, the newest that is there.
func PostgresPrograms() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", ErrNoPostgres
	}
	return filepath.Dir(slices.Max(found)), nil
}

// startPostgres makes a cluster where the fleet wants one, and runs it.
func (f *Fleet) startPostgres(ctx context.Context) (err error) {
	if !f.Options.Postgres {
		return nil
	}
	d := &database{}
	if d.bin, err = PostgresPrograms(); err != nil {
		return err
	}
	at, err := address()
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		return err
	}
	if d.dir, err = os.MkdirTemp("", "surehand-pg-"); err != nil { // not in the fleet's own, which nobody else may enter
		return err
	}
	f.database = d
	as, err := d.owner()
	if err != nil {
		return err
	}
	data := filepath.Join(d.dir, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(d.bin, "initdb"), "--no-sync", "-A", "trust", "-U", "temporal", "-D", data)
	initdb.Dir, initdb.SysProcAttr = d.dir, &syscall.SysProcAttr{Credential: as}
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	d.url = fmt.Sprintf("postgres://temporal@%s/temporal?pool_max_conns=%d", at, poolConnections)
	return f.add(spec{name: Postgres, path: filepath.Join(d.bin, "postgres"), as: as, work: d.dir, listens: []string{at},
		args:    []string{"-D", data, "-k", d.dir, "-p", port, "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=500"},
		answers: func(ctx context.Context) error { return d.ready(ctx, port) }}).Start(ctx)
}

// poolConnections of Temporal's: enough that it is never the connections that
// handoffs wait for.
const poolConnections = 50

func (d *database) ready(ctx context.Context, port string) error {
	return exec.CommandContext(ctx, filepath.Join(d.bin, "pg_isready"), "-q", "-h", d.dir, "-p", port).Run()
}

// owner is whom PostgreSQL runs as, since it does not run as root, and has the
// folder be theirs.
func (d *database) owner() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		return nil, errors.Join(ErrNoPostgres, err)
	}
	uid, uidErr := strconv.ParseUint(who.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(who.Gid, 10, 32)
	if err := errors.Join(uidErr, gidErr); err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, os.Chown(d.dir, int(uid), int(gid))
}

// remove deletes what the cluster held; without one it does nothing.
func (d *database) remove() error {
	if d == nil {
		return nil
	}
	return os.RemoveAll(d.dir)
}

// Transactions is how many the database has committed since its start; 0
// without one. It tells what it counts once a second or so.
func (f *Fleet) Transactions(ctx context.Context) (int, error) {
	if f.database == nil {
		return 0, nil
	}
	const query = "SELECT sum(xact_commit)::bigint FROM pg_stat_database"
	out, err := exec.CommandContext(ctx, filepath.Join(f.database.bin, "psql"), "-Atqc", query, strings.Split(f.database.url, "?")[0]).Output()
	if err != nil {
		return 0, fmt.Errorf("ask PostgreSQL for its counters: %w", err)
	}
	return strconv.Atoi(strings.TrimSpace(string(out)))
}
