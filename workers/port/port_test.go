package port

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if held := os.Getenv("SUREHAND_PORT_HELD"); held != "" { // the other process
		var n uint16
		_, err := fmt.Sscan(held, &n)
		_, taken := Hold(n)
		fmt.Println(err, errors.Is(taken, ErrHeld))
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func TestAPortIsOneProcesssUntilItGivesItBack(t *testing.T) {
	n, err := Free()
	if err != nil {
		t.Fatal(err)
	}
	other := func() string {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), fmt.Sprintf("SUREHAND_PORT_HELD=%d", n))
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	if got := other(); got != "<nil> true" {
		t.Errorf("another process was told %q", got)
	}
	if _, err := Hold(uint16(n)); !errors.Is(err, ErrHeld) {
		t.Error(err)
	}
	if err := taken.held[len(taken.held)-1].Close(); err != nil {
		t.Fatal(err)
	}
	if got := other(); got != "<nil> false" {
		t.Errorf("another process was told %q", got)
	}
}

func TestAPortAtWhichSomebodyListensIsNotGiven(t *testing.T) {
	n, err := Free()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", n+1))
	if err != nil {
		t.Skip("somebody else was faster:", err)
	}
	defer l.Close()
	if next, err := Free(); err != nil || next <= n+1 {
		t.Errorf("%d after %d, whose next is taken: %v", next, n, err)
	}
}
