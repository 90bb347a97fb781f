package native

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxRemoteVectors is how many places one call reads or writes: more gain little
// (measured), and between two calls the process is looked at.
const maxRemoteVectors = 64

// soPeerPidfd is SO_PEERPIDFD of Linux 6.5, which x/sys does not name everywhere.
const soPeerPidfd = 77

// ErrGone means that the process ended, so that its number may be another's.
var ErrGone = errors.New("the process is gone")

// Process is another process whose memory is read and written. A pidfd is held,
// because its number alone could come to mean a stranger.
type Process struct {
	pid int
	fd  int
}

// PeerProcess opens the process at the other end of a Unix socket, as the kernel
// recorded it.
func PeerProcess(c *net.UnixConn) (*Process, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var p *Process
	cerr := raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err != nil {
			return
		}
		var pidfd int
		if pidfd, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, soPeerPidfd); err != nil {
			// An older kernel: the peer lives, for it waits for the answer to its attach.
			pidfd, err = unix.PidfdOpen(int(cred.Pid), 0)
		}
		p = &Process{pid: int(cred.Pid), fd: pidfd}
	})
	if err := errors.Join(cerr, err); err != nil {
		return nil, fmt.Errorf("peer process: %w", err)
	}
	unix.CloseOnExec(p.fd)
	return p, nil
}

// Self is this process, for the probe at start.
func Self() (*Process, error) {
	fd, err := unix.PidfdOpen(unix.Getpid(), 0)
	if err != nil {
		return nil, fmt.Errorf("pidfd: %w", err)
	}
	return &Process{pid: unix.Getpid(), fd: fd}, nil
}

// PID is its number, for people.
func (p *Process) PID() int { return p.pid }

// Close lets it go.
func (p *Process) Close() error { return unix.Close(p.fd) }

// check refuses a process that ended: a pidfd becomes readable then.
func (p *Process) check() error {
	polls := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(polls, 0)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return fmt.Errorf("pidfd: %w", err)
		case n > 0:
			return ErrGone
		}
		return nil
	}
}

// ReadAt fills each place from the process's memory at the address beside it.
func (p *Process) ReadAt(at []uint64, into [][]byte) error {
	return p.move(unix.ProcessVMReadv, "read", at, into)
}

// WriteAt writes each place into the process's memory at the address beside it.
// When it returns, nothing of it can land any more: the call is synchronous.
func (p *Process) WriteAt(at []uint64, from [][]byte) error {
	return p.move(unix.ProcessVMWritev, "write", at, from)
}

type remoteCall func(pid int, local []unix.Iovec, remote []unix.RemoteIovec, flags uint) (int, error)

// vectors are the places of one call.
type vectors struct {
	local  [maxRemoteVectors]unix.Iovec
	remote [maxRemoteVectors]unix.RemoteIovec
}

var vectorPool = sync.Pool{New: func() any { return new(vectors) }}

// move looks at the process before the first call and after each: bytes that moved
// while it ended are not of it for sure.
func (p *Process) move(call remoteCall, verb string, at []uint64, places [][]byte) error {
	v := vectorPool.Get().(*vectors)
	defer func() {
		*v = vectors{} // it keeps no memory alive
		vectorPool.Put(v)
	}()
	if err := p.check(); err != nil {
		return err
	}
	for len(places) > 0 {
		want, n := 0, min(len(places), maxRemoteVectors)
		for i := range n {
			v.local[i].Base = unsafe.SliceData(places[i])
			v.local[i].SetLen(len(places[i]))
			v.remote[i] = unix.RemoteIovec{Base: uintptr(at[i]), Len: len(places[i])}
			want += len(places[i])
		}
		at, places = at[n:], places[n:]
		got, err := call(p.pid, v.local[:n], v.remote[:n], 0)
		if gone := p.check(); gone != nil {
			return gone
		}
		if err != nil {
			return fmt.Errorf("%s memory of process %d: %w", verb, p.pid, explain(err))
		}
		if got != want {
			return fmt.Errorf("%s memory of process %d: %d of %d bytes: not all of it is mapped", verb, p.pid, got, want)
		}
	}
	return nil
}

// explain says what a person can do about a refusal of the kernel.
func explain(err error) error {
	switch err {
	case unix.EPERM:
		return fmt.Errorf("%w: the kernel forbids it (R-41). Needed are the same user and either kernel.yama.ptrace_scope=0, a process that named this one by prctl(PR_SET_PTRACER), or CAP_SYS_PTRACE; in a container also a shared pid and user namespace", err)
	case unix.ENOSYS:
		return fmt.Errorf("%w: this kernel or its seccomp profile lacks process_vm_readv (R-41)", err)
	}
	return err
}

// AllowReader lets the process with that number read and write this one's memory
// under Yama; a kernel without Yama needs no leave.
func AllowReader(pid int) error {
	err := unix.Prctl(unix.PR_SET_PTRACER, uintptr(pid), 0, 0, 0)
	if err == unix.EINVAL {
		return nil
	}
	return err
}

// PeerPID is the number of the process that serves a Unix socket.
func PeerPID(c *net.UnixConn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(cerr, err); err != nil {
		return 0, fmt.Errorf("peer credentials: %w", err)
	}
	return int(cred.Pid), nil
}

// Anonymous maps private zeroed memory of this process.
func Anonymous(bytes int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", bytes, err)
	}
	advise(b)
	return b, nil
}

// Address is where b lies in this process; b must be mapped memory, which Go
// never moves.
func Address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
