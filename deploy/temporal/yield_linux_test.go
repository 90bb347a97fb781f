package main

import (
	"errors"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// A server that has answered has begun all kinds of threads.
func TestEveryThreadOfTheServerYields(t *testing.T) {
	own, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	yielding := unix.SchedAttr{Policy: unix.SCHED_BATCH, Nice: max(own.Nice, defaultNice)}
	if own.Policy != schedOther {
		yielding = *own
	}
	for _, c := range []struct {
		flags []string
		want  unix.SchedAttr
	}{
		{nil, yielding},
		{[]string{"--nice", "0"}, *own},
	} {
		s := startServer(t, dataDir(t), c.flags...)
		threads, err := os.ReadDir("/proc/" + strconv.Itoa(s.cmd.Process.Pid) + "/task")
		if err != nil || len(threads) < 2 {
			t.Fatal(threads, err)
		}
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err != nil {
				t.Fatal(err)
			}
			got, err := unix.SchedGetAttr(id, 0)
			if errors.Is(err, unix.ESRCH) {
				continue
			}
			if err != nil || got.Policy != c.want.Policy || got.Nice != c.want.Nice {
				t.Errorf("%q: thread %d is %+v, %v", c.flags, id, got, err)
			}
		}
	}
}
