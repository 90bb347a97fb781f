package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/surehand/surehand/deploy/temporal/datadir"
)

func TestTheServerEndsWithItsParent(t *testing.T) {
	data := dataDir(t)
	parent := exec.Command(os.Args[0], "--data", data, "--listen", "127.0.0.1:0", "--ui", "", "--die-with-parent")
	parent.Env = append(os.Environ(), roleVariable+"="+roleParent)
	stdout, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || !strings.Contains(line, `"ready":true`) {
		t.Fatalf("%q: %v", line, err)
	}
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := datadir.Open(impatient, data); !errors.Is(err, datadir.ErrInUse) {
		t.Fatalf("the server does not hold its data: %v", err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()                         // says "killed", as asked
	dir, err := datadir.Open(within(t), data) // works once the server has ended
	if err != nil {
		t.Fatalf("the server outlives its parent: %v", err)
	}
	if err := dir.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAParentThatIsGoneAlreadyIsNoticed(t *testing.T) {
	said := refused(t, "--data", dataDir(t), "--listen", "127.0.0.1:0", "--ui", "", "--die-with-parent=1")
	if os.Getpid() != 1 && !strings.Contains(said, "the parent process is gone already") {
		t.Fatal(said)
	}
}
