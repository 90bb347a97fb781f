package chaos

import (
	"errors"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inNamespace runs f on a thread in a network namespace of its own, which ends
// with it.
func inNamespace(t *testing.T, f func() error) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if errors.Is(err, unix.EPERM) {
			failed <- nil
			return
		}
		if err == nil {
			err = raiseLoopback()
		}
		if err == nil {
			err = f()
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		t.Error(err)
	}
}

func dial(address string) error {
	c, err := net.DialTimeout("tcp4", address, 300*time.Millisecond)
	if err != nil {
		return err
	}
	return c.Close()
}

// Each rule does what its fault says: a dropped packet is silence, a reset an
// error, and nothing is left of either once the wall is open.
func TestAWallDropsResetsAndOpens(t *testing.T) {
	inNamespace(t, func() error {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return err
		}
		address := l.Addr().String()
		port, err := portOf(address)
		if err != nil {
			return errors.Join(err, l.Close())
		}
		w, err := NewWall()
		if err != nil {
			return errors.Join(err, l.Close())
		}
		silent := func(err error) bool { var e net.Error; return errors.As(err, &e) && e.Timeout() }
		reset := func(err error) bool { return errors.Is(err, unix.ECONNREFUSED) }
		for _, c := range []struct {
			what string
			rule rule
			is   func(error) bool
		}{
			{"requests lost", rule{to: port}, silent},
			{"answers lost", rule{from: port}, silent},
			{"reset", rule{to: port, reset: true}, reset},
			{"everything lost by chance", rule{to: port, percent: 100}, silent},
			{"another port", rule{to: port ^ 1}, func(err error) bool { return err == nil }},
		} {
			if err := w.put([]rule{c.rule}); err != nil {
				return errors.Join(err, l.Close())
			}
			if err := dial(address); !c.is(err) {
				t.Errorf("%s: a dial ends with %v", c.what, err)
			}
			if err := w.open(); err != nil {
				return errors.Join(err, l.Close())
			}
			if err := dial(address); err != nil {
				t.Errorf("%s, taken back: %v", c.what, err)
			}
		}
		return l.Close()
	})
}

func TestAddressesWithoutAPortAreRefused(t *testing.T) {
	for _, a := range []string{"", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:x", "127.0.0.1:70000"} {
		if _, err := portOf(a); err == nil {
			t.Errorf("%q was accepted", a)
		}
	}
}
