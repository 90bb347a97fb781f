package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxRights bounds the descriptors accepted beside one message.
const maxRights = 4

// SendFiles writes b with the descriptors of files beside its first byte.
func SendFiles(c *net.UnixConn, b []byte, files ...*os.File) error {
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	n, _, err := c.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
	if err != nil {
		return err
	}
	if n < len(b) {
		_, err = c.Write(b[n:])
	}
	return err
}

// ReceiveFiles fills b and takes the descriptors that came beside it. More than
// maxRights of them are closed and refused.
func ReceiveFiles(c *net.UnixConn, b []byte) (files []*os.File, err error) {
	oob := make([]byte, unix.CmsgSpace(4*maxRights))
	for got := 0; got < len(b); {
		n, oobn, flags, _, rerr := c.ReadMsgUnix(b[got:], oob)
		more, perr := parseRights(oob[:oobn])
		files = append(files, more...)
		switch {
		case rerr != nil:
			return files, rerr
		case perr != nil:
			return files, perr
		case flags&unix.MSG_CTRUNC != 0 || len(files) > maxRights:
			return files, fmt.Errorf("more than %d descriptors beside a message", maxRights)
		case n == 0:
			return files, io.ErrUnexpectedEOF
		}
		got += n
	}
	return files, nil
}

func parseRights(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("control message: %w", err)
	}
	var files []*os.File
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return files, fmt.Errorf("descriptors: %w", err)
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

// PeerUser is the user id of the process that connected to a Unix socket, as
// the kernel recorded it.
func PeerUser(c *net.UnixConn) (uid uint32, err error) {
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
	return cred.Uid, nil
}

// maxVectors is the kernel's IOV_MAX.
const maxVectors = 1024

// RawConn is a connection's descriptor under Go's poller.
type RawConn = syscall.RawConn

// Unpace has a connection to this very host sent as fast as its reader takes it: a
// congestion control that paces by what it estimates of the path (bbr) halves the
// GB/s of one that has no path. Everybody may choose reno, and a kernel that refuses
// loses nothing but that.
func Unpace(c RawConn) {
	_ = c.Control(func(fd uintptr) { _ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno") })
}

// IsRefused says that nobody listened at the address that was dialled.
func IsRefused(err error) bool { return errors.Is(err, unix.ECONNREFUSED) }

// IsPassing says that an accept failed for want of descriptors or memory, or
// because the peer left: the next one may succeed.
func IsPassing(err error) bool {
	for _, e := range []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ECONNABORTED, unix.EINTR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// ReadVector fills every buffer of into, in order, straight from the socket:
// one system call for up to 1024 places. wait is called before each.
func ReadVector(c RawConn, into [][]byte, wait func() error) error {
	for len(into) > 0 {
		if len(into[0]) == 0 {
			into = into[1:]
			continue
		}
		if err := wait(); err != nil {
			return err
		}
		n, err := readSome(c, into[:min(len(into), maxVectors)])
		switch {
		case err != nil:
			return err
		case n == 0:
			return io.ErrUnexpectedEOF
		}
		into = advance(into, n)
	}
	return nil
}

func readSome(c RawConn, into [][]byte) (n int, err error) {
	rerr := c.Read(func(fd uintptr) bool {
		for {
			n, err = unix.Readv(int(fd), into)
			if err != unix.EINTR {
				return err != unix.EAGAIN
			}
		}
	})
	if rerr != nil {
		return 0, rerr
	}
	return n, err
}

// advance drops n read bytes from the front.
func advance(into [][]byte, n int) [][]byte {
	for len(into) > 0 && n >= len(into[0]) {
		n -= len(into[0])
		into = into[1:]
	}
	if n > 0 {
		into[0] = into[0][n:]
	}
	return into
}

// ListenPrivate listens on a Unix socket that nobody but this user can reach,
// from its first moment on: bind gives the file the mode of the socket, which is
// made private before.
func ListenPrivate(path string) (*net.UnixListener, error) {
	cfg := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		cerr := raw.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(cerr, err)
	}}
	l, err := cfg.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l.(*net.UnixListener), nil
}
