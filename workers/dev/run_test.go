package dev

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// dummyStack plays any process of the stack, by its command line.
func dummyStack() {
	if strings.HasSuffix(os.Args[0], os.Getenv("SUREHAND_DUMMY_FAILS")) && os.Getenv("SUREHAND_DUMMY_FAILS") != "" {
		dummy("failing")
	}
	if i := slices.Index(os.Args, "--listen"); os.Args[1] == "serve" {
		mux := http.NewServeMux()
		mux.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
		mux.HandleFunc("/v1/models", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"data":[{"id":"tiny"}]}`) })
		go func() {
			fmt.Fprintln(os.Stderr, http.ListenAndServe(os.Args[i+1], mux))
			os.Exit(6)
		}()
	}
	dummy("good")
}

// stack is a folder with every program in it, all of them this test binary.
func stack(t *testing.T) Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for _, name := range []string{"surehand", "transferd", "surehand-temporal"} {
		if err := os.Symlink(self, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("SUREHAND_DUMMY", "stack")
	c := config(t)
	c.Self, c.JSON, c.Decode = filepath.Join(folder, "surehand"), true, 2
	return c
}

// running is a Run in the background.
type running struct {
	lines   *bufio.Scanner
	signals chan os.Signal
	done    chan error
}

func background(t *testing.T, c Config) *running {
	t.Helper()
	read, write := io.Pipe()
	r := &running{lines: bufio.NewScanner(read), signals: make(chan os.Signal, 2), done: make(chan error, 1)}
	go func() {
		err := Run(context.Background(), c, Streams{Out: write, Progress: io.Discard}, r.signals)
		write.Close()
		r.done <- err
	}()
	return r
}

func line[T any](t *testing.T, r *running) (v T) {
	t.Helper()
	if !r.lines.Scan() {
		t.Fatalf("no line: %v", <-r.done)
	}
	if err := json.Unmarshal(r.lines.Bytes(), &v); err != nil {
		t.Fatalf("%v in %s", err, r.lines.Bytes())
	}
	return v
}

func TestAWholeRunTwiceOnTheSameData(t *testing.T) {
	c := stack(t)
	for range 2 {
		r := background(t, c)
		up := line[Ready](t, r)
		if !up.Ready || up.Model != "tiny" || len(up.Children) != 11 || up.UI == "" || up.PID != os.Getpid() {
			t.Fatalf("%+v", up)
		}
		victim := up.Children[slices.IndexFunc(up.Children, func(c Child) bool { return c.Name == "p2" })]
		if err := syscall.Kill(victim.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if ended := line[Change](t, r); ended.Event != "ended" || ended.Name != "p2" {
			t.Fatal(ended)
		}
		again := line[Change](t, r)
		if again.Event != "restarted" || again.Name != "p2" || again.PID == victim.PID {
			t.Fatal(again)
		}
		r.signals <- syscall.SIGINT
		if err := <-r.done; err != nil {
			t.Fatal(err)
		}
		for _, child := range up.Children {
			gone(t, child.PID)
		}
		gone(t, again.PID)
	}
}

func TestASignalBeforeReadyStopsInOrder(t *testing.T) {
	c := stack(t)
	r := background(t, c)
	r.signals <- syscall.SIGTERM
	if err := <-r.done; err != nil {
		t.Fatal(err)
	}
	left, err := exec.Command("pgrep", "-f", c.Data).Output()
	if len(left) > 0 {
		t.Fatalf("%s %v", left, err)
	}
}

func TestAPartThatCannotStartIsNamedWithItsLog(t *testing.T) {
	c := stack(t)
	t.Setenv("SUREHAND_DUMMY_FAILS", "surehand-temporal")
	r := background(t, c)
	err := <-r.done
	if err == nil || !strings.Contains(err.Error(), "temporal did not start") || !strings.Contains(err.Error(), "temporal | the reason why") {
		t.Fatal(err)
	}
}

func TestAGatewayThatIsNeverReadyIsSaid(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := served(ctx, "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "the gateway is not ready") {
		t.Fatal(err)
	}
}
