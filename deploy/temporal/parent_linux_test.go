package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/surehand/surehand/deploy/temporal/datadir"
)

// beParent starts a server that is to die with it, and waits to be killed.
func beParent() {
	cmd, _ := asCommand(context.Background(), os.Args[1:]...)
	cmd.Stdout = os.Stdout
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

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
	if _, err := datadir.Open(data); !errors.Is(err, datadir.ErrInUse) {
		t.Fatalf("the server does not hold its data: %v", err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // says "killed", as asked
	await(t, func() error {
		dir, err := datadir.Open(data) // works once the server has ended
		if err != nil {
			return err
		}
		return dir.Close()
	})
}

func TestAParentThatIsGoneAlreadyIsNoticed(t *testing.T) {
	said := refused(t, "--data", dataDir(t), "--listen", "127.0.0.1:0", "--ui", "", "--die-with-parent=1")
	if os.Getpid() != 1 && !strings.Contains(said, "the parent process is gone already") {
		t.Fatal(said)
	}
}
