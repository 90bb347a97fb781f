package chaos

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// insideVariable tells a process that it is in the namespace already.
const insideVariable = "SUREHAND_CHAOS_NAMESPACE"

// Inside says whether this process runs in a network namespace of its own.
func Inside() bool { return os.Getenv(insideVariable) != "" }

// Enter runs this very command again in a network namespace of its own and
// gives its exit status. An error says that there can be none here; the command
// then goes on without the faults that need it.
func Enter() (status int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	runtime.LockOSThread() // the child dies with the thread that started it
	defer runtime.UnlockOSThread()
	c := exec.Command(self, os.Args[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.Env = append(os.Environ(), insideVariable+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGTERM}
	if err := c.Start(); err != nil {
		return 0, fmt.Errorf("a network namespace of its own: %w", err)
	}
	var exit *exec.ExitError
	if err := c.Wait(); errors.As(err, &exit) {
		return exit.ExitCode(), nil
	} else if err != nil {
		return 0, err
	}
	return 0, nil
}

// raiseLoopback brings up lo, which is down in a fresh namespace.
func raiseLoopback() error {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return err
	}
	if lo.Flags&net.FlagUp != 0 {
		return nil
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	r, err := unix.NewIfreq("lo")
	if err == nil {
		r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		err = unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, r)
	}
	return errors.Join(err, unix.Close(s))
}
