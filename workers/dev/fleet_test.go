package dev

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary is its own dummy child: SUREHAND_DUMMY says which.
func TestMain(m *testing.M) {
	switch mode := os.Getenv("SUREHAND_DUMMY"); mode {
	case "":
		goleak.VerifyTestMain(m)
	case "parent":
		dummyParent()
	case "stack":
		dummyStack()
	default:
		dummy(mode)
	}
}

// dummy is a child: well-behaved, stubborn, silent or failing.
func dummy(mode string) {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	switch mode {
	case "failing":
		fmt.Fprintln(os.Stderr, "the reason why")
		os.Exit(3)
	case "silent":
	default:
		fmt.Println("not yet")
		fmt.Println(`{"ready":true}`)
		fmt.Println("after")
	}
	for range terminated {
		if mode == "stubborn" {
			continue
		}
		if file := os.Getenv("SUREHAND_DUMMY_ORDER"); file != "" {
			f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				os.Exit(4)
			}
			fmt.Fprintln(f, os.Getenv("SUREHAND_DUMMY_NAME"))
			os.Exit(0)
		}
		os.Exit(0)
	}
}

// dummyParent has one child, tells its pid, and waits to be killed.
func dummyParent() {
	f, err := newFleet([]Spec{child("c", "good")}, os.Getenv("SUREHAND_DUMMY_LOGS"), func(Change) {})
	if err == nil {
		err = f.start(context.Background())
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(5)
	}
	fmt.Println(f.pids()["c"])
	select {}
}

func child(name, mode string, needs ...string) Spec {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return Spec{Name: name, Path: self, Env: []string{"SUREHAND_DUMMY=" + mode, "SUREHAND_DUMMY_NAME=" + name}, Needs: needs, Grace: 10 * time.Second}
}

// changes gathers what is told.
type changes struct {
	mu   sync.Mutex
	told []Change
}

func (c *changes) tell(one Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, one)
}

// has polls for a change.
func (c *changes) has(t *testing.T, event, name string, times int) Change {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		c.mu.Lock()
		found := 0
		for _, one := range c.told {
			if one.Event == event && one.Name == name {
				if found++; found == times {
					c.mu.Unlock()
					return one
				}
			}
		}
		c.mu.Unlock()
		<-time.After(5 * time.Millisecond)
	}
	t.Fatalf("%s was not %s %d times: %+v", name, event, times, c.told)
	return Change{}
}

func alive(pid int) bool {
	// A zombie still takes signals, but has no command line.
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && len(text) > 0
}

func gone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); alive(pid); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("pid %d is still there", pid)
		}
	}
}

func fleetOf(t *testing.T, told *changes, specs ...Spec) *fleet {
	t.Helper()
	f, err := newFleet(specs, t.TempDir(), told.tell)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestAKilledChildComesBack(t *testing.T) {
	told := &changes{}
	f := fleetOf(t, told, child("c", "good"))
	if err := f.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := f.pids()["c"]
	for life := 1; life <= 2; life++ {
		if err := syscall.Kill(f.pids()["c"], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if ended := told.has(t, "ended", "c", life); !strings.Contains(ended.Detail, "killed") {
			t.Error(ended)
		}
		if again := told.has(t, "restarted", "c", life); again.PID == first || !alive(again.PID) {
			t.Error(again)
		}
	}
	last := f.pids()["c"]
	if err := f.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	gone(t, last)
}

func TestAChildThatDoesNotStartEndsTheStartWithItsLog(t *testing.T) {
	f := fleetOf(t, &changes{}, child("ok", "good"), child("bad", "failing"), child("later", "good", "bad"))
	err := f.start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "bad did not start") || !strings.Contains(err.Error(), "bad | the reason why") {
		t.Fatal(err)
	}
	if err := f.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f.pids()["later"] != 0 {
		t.Fatal("a child started without what it needs")
	}
}

func TestTheDrainGoesByRank(t *testing.T) {
	order := filepath.Join(t.TempDir(), "order")
	specs := []Spec{child("last", "good"), child("first", "good", "last"), child("middle", "good")}
	for i, rank := range []int{3, 1, 2} {
		specs[i].Rank = rank
		specs[i].Env = append(specs[i].Env, "SUREHAND_DUMMY_ORDER="+order)
	}
	f := fleetOf(t, &changes{}, specs...)
	if err := f.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(order)
	if err != nil || string(text) != "first\nmiddle\nlast\n" {
		t.Fatalf("%q %v", text, err)
	}
}

func TestAStubbornChildIsKilled(t *testing.T) {
	short := child("grace", "stubborn")
	short.Grace = 50 * time.Millisecond
	long := child("signal", "stubborn")
	long.Grace = time.Hour
	for _, spec := range []Spec{short, long} {
		f := fleetOf(t, &changes{}, spec)
		if err := f.start(t.Context()); err != nil {
			t.Fatal(err)
		}
		pid := f.pids()[spec.Name]
		ctx, second := context.WithCancel(t.Context())
		if spec.Name == "signal" {
			second()
		}
		if err := f.stop(ctx); err == nil || !strings.Contains(err.Error(), "was killed") {
			t.Error(err)
		}
		second()
		gone(t, pid)
	}
}

func TestAStartCanBeInterrupted(t *testing.T) {
	f := fleetOf(t, &changes{}, child("c", "silent"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.start(ctx); err != context.Canceled {
		t.Fatal(err)
	}
	if err := f.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestChildrenDieWithTheirParent(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(self)
	parent.Env = append(os.Environ(), "SUREHAND_DUMMY=parent", "SUREHAND_DUMMY_LOGS="+t.TempDir())
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	if !alive(pid) {
		t.Fatal("there is no child")
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := parent.Wait(); err == nil {
		t.Fatal("the parent was not killed")
	}
	gone(t, pid)
}

func TestWhatAChildPrintsIsInItsLog(t *testing.T) {
	f := fleetOf(t, &changes{}, child("c", "good"))
	if err := f.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(f.logs, "c.log"))
	if err != nil || string(text) != "not yet\nafter\n" {
		t.Fatalf("%q %v", text, err)
	}
}

func TestNamesThatCannotBeAreRefused(t *testing.T) {
	for _, specs := range [][]Spec{{{Name: "a"}, {Name: "a"}}, {{Name: "a", Needs: []string{"b"}}}} {
		if _, err := newFleet(specs, t.TempDir(), func(Change) {}); err == nil {
			t.Error(specs)
		}
	}
}
