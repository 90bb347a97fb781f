package native

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAMemfdIsSharedAndCannotBeCut(t *testing.T) {
	f, err := Memfd("m", 8192)
	check(t, err)
	defer f.Close()
	a, err := Map(f, 8192)
	check(t, err)
	b, err := Map(f, 4096)
	check(t, err)
	a[5] = 42
	if b[5] != 42 {
		t.Fatal("two mappings of one memory differ")
	}
	if f.Truncate(4096) == nil || f.Truncate(16384) == nil {
		t.Fatal("its size changed")
	}
	check(t, CheckSealed(f, 8192))
	if CheckSealed(f, 8193) == nil {
		t.Fatal("more was promised than is there")
	}
	Floats(a)[1] = 1
	if a[7] != 0x3f {
		t.Fatalf("% x", a[:8])
	}
	check(t, Unmap(a))
	check(t, Unmap(b))
}

func TestAFileThatCanBeCutIsRefused(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	check(t, err)
	defer f.Close()
	check(t, f.Truncate(4096))
	if CheckSealed(f, 4096) == nil {
		t.Fatal("accepted a plain file")
	}
	fd, err := unix.MemfdCreate("unsealed", unix.MFD_ALLOW_SEALING)
	check(t, err)
	m := os.NewFile(uintptr(fd), "unsealed")
	defer m.Close()
	check(t, m.Truncate(4096))
	if CheckSealed(m, 4096) == nil {
		t.Fatal("accepted a memfd that its owner can cut")
	}
}

func sockets(t *testing.T, dial func(path string)) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := ListenPrivate(path)
	check(t, err)
	defer l.Close()
	st, err := os.Stat(path)
	check(t, err)
	if st.Mode().Perm() != 0o600 {
		t.Fatalf("mode %o", st.Mode().Perm())
	}
	check(t, os.Chmod(path, 0o666)) // so that only the credentials tell
	for dir := filepath.Dir(path); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		check(t, os.Chmod(dir, 0o755))
	}
	dial(path)
	c, err := l.AcceptUnix()
	check(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestThePeersUserIsTold(t *testing.T) {
	c := sockets(t, func(path string) {
		d, err := net.Dial("unix", path)
		check(t, err)
		t.Cleanup(func() { _ = d.Close() })
	})
	uid, err := PeerUser(c)
	check(t, err)
	if int(uid) != os.Getuid() {
		t.Fatal(uid)
	}
}

func TestAnotherUserIsToldApart(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	const nobody = 65534
	c := sockets(t, func(path string) {
		failed := make(chan error, 1)
		go func() {
			runtime.LockOSThread() // and never unlocked: this thread ends with the goroutine
			if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), nobody, ^uintptr(0)); e != 0 {
				failed <- e
				return
			}
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
			}
			if fd >= 0 {
				t.Cleanup(func() { _ = unix.Close(fd) })
			}
			failed <- err
		}()
		check(t, <-failed)
	})
	uid, err := PeerUser(c)
	check(t, err)
	if uid != nobody {
		t.Fatal(uid)
	}
}

func TestDescriptorsTravelBesideTheirMessage(t *testing.T) {
	var sender *net.UnixConn
	c := sockets(t, func(path string) {
		d, err := net.Dial("unix", path)
		check(t, err)
		sender = d.(*net.UnixConn)
		t.Cleanup(func() { _ = sender.Close() })
	})
	f, err := Memfd("m", 4096)
	check(t, err)
	defer f.Close()
	b, err := Map(f, 4096)
	check(t, err)
	b[0] = 9
	check(t, SendFiles(sender, []byte("hello"), f, f))
	got := make([]byte, 5)
	files, err := ReceiveFiles(c, got)
	check(t, err)
	if string(got) != "hello" || len(files) != 2 {
		t.Fatalf("%q with %d files", got, len(files))
	}
	other, err := Map(files[1], 4096)
	check(t, err)
	if other[0] != 9 {
		t.Fatal("another memory came")
	}
	check(t, Unmap(other))
	check(t, Unmap(b))
	for _, f := range files {
		check(t, f.Close())
	}
}

func TestAVectorIsReadIntoItsPlaces(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	want := bytes.Repeat([]byte("0123456789"), 30000)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		for i := 0; i < len(want); i += 7777 { // in torn parts
			_, _ = c.Write(want[i:min(i+7777, len(want))])
		}
		_ = c.Close()
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	check(t, err)
	defer c.Close()
	raw, err := c.(*net.TCPConn).SyscallConn()
	check(t, err)
	got := make([]byte, len(want))
	var places [][]byte
	for i := 0; i < len(got); i += 100 { // more places than one call takes
		places = append(places, got[i:i+100])
	}
	waits := 0
	check(t, ReadVector(raw, places, func() error { waits++; return nil }))
	if !bytes.Equal(got, want) || waits == 0 {
		t.Fatal("bytes differ")
	}
	if err := ReadVector(raw, [][]byte{make([]byte, 1)}, func() error { return nil }); err == nil {
		t.Fatal("read past the end")
	}
}

func TestALockIsHeldByOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	a, err := os.Create(path)
	check(t, err)
	defer a.Close()
	b, err := os.Open(path)
	check(t, err)
	defer b.Close()
	check(t, Lock(a))
	if err := Lock(b); err != ErrLocked {
		t.Fatal(err)
	}
}
