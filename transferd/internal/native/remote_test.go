package native

import (
	"bytes"
	"errors"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMemoryOfAProcessIsReadAndWrittenInManyPlaces(t *testing.T) {
	p, err := Self()
	check(t, err)
	defer func() { check(t, p.Close()) }()
	const n, size = 200, 4096 // several calls
	memory, err := Anonymous(2 * n * size)
	check(t, err)
	defer func() { check(t, Unmap(memory)) }()
	var at []uint64
	var in, out [][]byte
	for i := range n {
		at = append(at, Address(memory)+uint64(2*i*size))
		in = append(in, bytes.Repeat([]byte{byte(i + 1)}, size))
		out = append(out, make([]byte, size))
	}
	check(t, p.WriteAt(at, in))
	check(t, p.ReadAt(at, out))
	for i := range n {
		if !bytes.Equal(in[i], out[i]) || memory[(2*i+1)*size] != 0 {
			t.Fatalf("place %d", i)
		}
	}
	edge := [][]byte{make([]byte, 2*size)}
	check(t, unix.Mprotect(memory[(2*n-1)*size:], unix.PROT_NONE))
	if err := p.ReadAt([]uint64{Address(memory) + (2*n-2)*size}, edge); err == nil {
		t.Fatal("half of it is not mapped")
	}
	if err := p.ReadAt([]uint64{8}, edge); !errors.Is(err, unix.EFAULT) {
		t.Fatal(err)
	}
}

func TestAProcessThatEndedIsNotTakenForAnother(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	check(t, cmd.Start())
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	check(t, err)
	p := &Process{pid: cmd.Process.Pid, fd: fd}
	defer func() { check(t, p.Close()) }()
	check(t, p.check())
	check(t, cmd.Process.Kill())
	_ = cmd.Wait()        // killed
	p.pid = unix.Getpid() // its number is another's now
	word, err := Anonymous(8)
	check(t, err)
	defer func() { check(t, Unmap(word)) }()
	if err := p.ReadAt([]uint64{Address(word)}, [][]byte{make([]byte, 8)}); !errors.Is(err, ErrGone) {
		t.Fatal(err)
	}
}

// openucx/ucx#3046, #8958, pytorch/tensorpipe#188: the kernel forbids it. The refusal says
// what to do; nothing crashes.
func TestAKernelThatForbidsItIsExplained(t *testing.T) {
	refused := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its changed user
		const nobody = 65534
		if unix.Getuid() == 0 {
			if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); e != 0 {
				refused <- e
				return
			}
		}
		init := &Process{pid: 1, fd: -1}
		fd, err := unix.PidfdOpen(1, 0)
		if err != nil {
			refused <- err
			return
		}
		init.fd = fd
		err = init.ReadAt([]uint64{4096}, [][]byte{make([]byte, 8)})
		_ = init.Close()
		refused <- err
	}()
	err := <-refused
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "ptrace_scope") {
		t.Fatal(err)
	}
}
