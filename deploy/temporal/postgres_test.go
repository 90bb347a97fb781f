package main

import (
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
	"testing"

	"go.temporal.io/api/workflowservice/v1"
)

// onEither runs a test on SQLite files and on a PostgreSQL of its own.
func onEither(t *testing.T, test func(t *testing.T, data string)) {
	t.Run("SQLite", func(t *testing.T) { test(t, dataDir(t)) })
	t.Run("PostgreSQL", func(t *testing.T) { test(t, postgres(t)) })
}

// postgres runs a private cluster, and gives the URL of a database that is not
// there yet.
func postgres(t *testing.T) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // only a bad pattern is an error
	if len(found) == 0 {
		t.Skip("no PostgreSQL here; Debian's package is called postgresql")
	}
	bin := filepath.Dir(slices.Max(found))
	dir, err := os.MkdirTemp("", "pg") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	as := postgresUser(t, dir)
	data := filepath.Join(dir, "data")
	run := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.Dir, cmd.SysProcAttr = dir, as
		return cmd
	}
	if out, err := run("initdb", "--no-sync", "-A", "trust", "-U", "temporal", "-D", data).CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	// fsync=off: these tests kill Temporal, never PostgreSQL.
	server := run("postgres", "-D", data, "-p", strconv.Itoa(port), "-k", dir, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGQUIT) // at once
		_ = server.Wait()                          // says "exit status 2"
	})
	await(t, func() error { return run("pg_isready", "-q", "-h", dir, "-p", strconv.Itoa(port)).Run() })
	return fmt.Sprintf("postgres://temporal:s3cret-w0rd@127.0.0.1:%d/histories", port)
}

// postgresUser is whom PostgreSQL runs as, since it does not run as root.
func postgresUser(t *testing.T, dir string) *syscall.SysProcAttr {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		t.Skip("PostgreSQL does not run as root, and there is no user postgres")
	}
	uid, uidErr := strconv.Atoi(who.Uid)
	gid, gidErr := strconv.Atoi(who.Gid)
	if uidErr != nil || gidErr != nil {
		t.Skipf("user postgres has ids %s and %s", who.Uid, who.Gid)
	}
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

func TestAStoreKeepsItsShardsAndItsPassword(t *testing.T) {
	url := postgres(t)
	first := startServer(t, url, "--shards", "3")
	has, err := first.raw(t).GetClusterInfo(within(t), &workflowservice.GetClusterInfoRequest{})
	if err != nil || has.GetHistoryShardCount() != 3 {
		t.Fatalf("%d shards: %v", has.GetHistoryShardCount(), err)
	}
	first.stop(t)
	said := refused(t, "--store", url, "--shards", "5", "--listen", "127.0.0.1:0", "--ui", "", "--log-level", "debug")
	if !strings.Contains(said, "another number of history shards") || !strings.Contains(said, "3, not 5") {
		t.Fatal(said)
	}
	for what, text := range map[string]string{"the first run": first.stderr.String(), "the refused one": said} {
		if strings.Contains(text, "s3cret-w0rd") {
			t.Fatalf("%s logged the store's password:\n%s", what, text)
		}
	}
	startServer(t, url) // as they are
}

func TestAStoreThatCannotBeUsedIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ url, says string }{
		"another database":     {"mysql://temporal@127.0.0.1/histories", "postgres://user@host:port/database"},
		"no database":          {"postgres://temporal@127.0.0.1", "names no database"},
		"in the clear":         {"postgres://temporal:s3cret-w0rd@192.0.2.1/histories", "sslmode=verify-full"},
		"to whomever answers":  {"postgres://temporal:s3cret-w0rd@192.0.2.1/histories?sslmode=require", "sslmode=verify-full"},
		"one way in the clear": {"postgres://temporal:s3cret-w0rd@127.0.0.1,db.example/histories", "sslmode=verify-full"},
		"nonsense":             {"postgres://temporal:s3cret-w0rd@127.0.0.1:x/histories", "is no PostgreSQL database"},
		"too few connections":  {"postgres://temporal@127.0.0.1/histories?pool_max_conns=1", "pool_max_conns"},
		"nobody there":         {"postgres://temporal:s3cret-w0rd@127.0.0.1:1/histories", "connect to the store"},
	} {
		t.Run(name, func(t *testing.T) {
			said := refused(t, "--store", c.url, "--listen", "127.0.0.1:0", "--ui", "")
			if !strings.Contains(said, c.says) || strings.Contains(said, "s3cret-w0rd") {
				t.Fatal(said)
			}
		})
	}
}
