package native_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/surehand/surehand/transferd/internal/native"
	"github.com/surehand/surehand/transferd/internal/native/fakecuda"

	"go.uber.org/goleak"
)

// The test binary is the engine's process as well: a handle is never opened by the
// process that it is of.
const ownerVariable = "SUREHAND_TEST_CUDA_OWNER"

func TestMain(m *testing.M) {
	if lib := os.Getenv(ownerVariable); lib != "" {
		if err := beOwner(lib); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

const deviceBytes = 6 << 20 // more than fits into the staging memory at once

// beOwner allocates, fills, prints its handle, waits for the other process and
// prints what is in the memory then.
func beOwner(lib string) error {
	cuda, err := native.LoadCUDA(lib)
	if err != nil {
		return err
	}
	m, err := cuda.AllocateCUDA(fakecuda.Device(1), deviceBytes)
	if err != nil {
		return err
	}
	if err := m.WriteAt([]uint64{deviceBytes - 4}, [][]byte{[]byte("last")}); err != nil {
		return err
	}
	h, err := m.Handle()
	if err != nil {
		return err
	}
	if _, err := os.Stdout.Write(h[:]); err != nil {
		return err
	}
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return err
	}
	out := make([]byte, 4)
	if err := m.ReadAt([]uint64{4096}, [][]byte{out}); err != nil {
		return err
	}
	_, err = os.Stdout.Write(out)
	return errors.Join(err, m.Close())
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// owner starts the engine's process.
func owner(t *testing.T, lib string) (native.CUDAHandle, func() []byte) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), ownerVariable+"="+lib)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	check(t, err)
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // ended already, mostly
		_ = cmd.Wait()
	})
	var h native.CUDAHandle
	_, err = out.Read(h[:])
	check(t, err)
	return h, func() []byte {
		_, err := in.Write([]byte("x"))
		check(t, err)
		got := make([]byte, 4)
		_, err = out.Read(got)
		check(t, err)
		check(t, cmd.Wait())
		return got
	}
}

func TestDeviceMemoryOfAnotherProcessIsReadAndWritten(t *testing.T) {
	fake := fakecuda.Build(t)
	handle, seen := owner(t, fake.Path)
	cuda, err := native.LoadCUDA(fake.Path)
	check(t, err)
	m, err := cuda.OpenCUDA(fakecuda.Device(1), handle, 4096, deviceBytes-4096)
	check(t, err)
	last := make([]byte, 4)
	check(t, m.ReadAt([]uint64{deviceBytes - 4096 - 4}, [][]byte{last}))
	if string(last) != "last" {
		t.Fatalf("the last byte of the allocation is not there: %q", last)
	}
	a, b := bytes.Repeat([]byte{1}, 3<<20), bytes.Repeat([]byte{2}, 2<<20)
	check(t, m.WriteAt([]uint64{16, 3<<20 + 16}, [][]byte{a, b}))
	check(t, m.WriteAt([]uint64{0}, [][]byte{[]byte("seen")}))
	x, y := make([]byte, len(a)), make([]byte, len(b))
	check(t, m.ReadAt([]uint64{16, 3<<20 + 16}, [][]byte{x, y}))
	if !bytes.Equal(a, x) || !bytes.Equal(b, y) {
		t.Fatal("bytes differ")
	}
	for _, at := range []uint64{deviceBytes - 4096 - 3, deviceBytes, ^uint64(0)} {
		if m.ReadAt([]uint64{at}, [][]byte{last}) == nil {
			t.Fatalf("read 4 bytes at %d", at)
		}
	}
	if m.WriteAt([]uint64{0}, [][]byte{make([]byte, 5<<20)}) == nil {
		t.Fatal("a place larger than the staging memory")
	}
	check(t, m.Close())
	if m.ReadAt([]uint64{0}, [][]byte{last}) == nil {
		t.Fatal("read after close")
	}
	if got := seen(); string(got) != "seen" {
		t.Fatalf("the owner sees %q", got)
	}
	fake.MustBeClean(t)
}

func TestAWrongHandleDeviceOrRangeIsRefusedAndLeavesNothing(t *testing.T) {
	fake := fakecuda.Build(t)
	handle, seen := owner(t, fake.Path)
	cuda, err := native.LoadCUDA(fake.Path)
	check(t, err)
	var nonsense native.CUDAHandle
	for name, open := range map[string]func() (*native.CUDAMemory, error){
		"nonsense":           func() (*native.CUDAMemory, error) { return cuda.OpenCUDA(fakecuda.Device(1), nonsense, 0, 1) },
		"no such device":     func() (*native.CUDAMemory, error) { return cuda.OpenCUDA(fakecuda.Device(9), handle, 0, 1) },
		"more than there is": func() (*native.CUDAMemory, error) { return cuda.OpenCUDA(fakecuda.Device(1), handle, 0, deviceBytes+1) },
		"past the end":       func() (*native.CUDAMemory, error) { return cuda.OpenCUDA(fakecuda.Device(1), handle, ^uint64(0), 2) },
		"nothing":            func() (*native.CUDAMemory, error) { return cuda.OpenCUDA(fakecuda.Device(1), handle, 0, 0) },
	} {
		if _, err := open(); err == nil {
			t.Errorf("%s: it was opened", name)
		}
	}
	seen()
	if _, err := cuda.OpenCUDA(fakecuda.Device(1), handle, 0, 1); err == nil {
		t.Error("memory that its owner freed was opened")
	}
	fake.MustBeClean(t)
}

// A synchronization that fails leaves copies posted. Either the context is
// destroyed, and they never land, or the memory says that it is not quiescent.
func TestAFailedWaitIsDestroyedOrSaysThatItIsNotQuiescent(t *testing.T) {
	for _, stuck := range []bool{false, true} {
		fake := fakecuda.Build(t)
		cmd := exec.Command(os.Args[0], "-test.run", "TestBreakingChild", "-test.v")
		cmd.Env = append(os.Environ(), "SUREHAND_TEST_CUDA_BREAK="+fake.Path, "FAKE_CUDA_BREAK=2", "FAKE_CUDA_LATE=100")
		if stuck {
			cmd.Env = append(cmd.Env, "FAKE_CUDA_STUCK=1")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		lines, violations := fake.Log(t)
		if late := fakecuda.Count(lines, "late"); len(violations) > 0 || (late > 0) != stuck {
			t.Fatalf("stuck %v: %d late, %q", stuck, late, violations)
		}
	}
}

func TestBreakingChild(t *testing.T) {
	lib := os.Getenv("SUREHAND_TEST_CUDA_BREAK")
	if lib == "" {
		t.Skip("a child of the test above")
	}
	cuda, err := native.LoadCUDA(lib)
	check(t, err)
	m, err := cuda.AllocateCUDA(fakecuda.Device(0), 8192)
	check(t, err)
	check(t, m.WriteAt([]uint64{0}, [][]byte{[]byte("good")}))
	err = m.WriteAt([]uint64{0}, [][]byte{[]byte("late")})
	stuck := os.Getenv("FAKE_CUDA_STUCK") != ""
	if err == nil || errors.Is(err, native.ErrNotQuiescent) != stuck {
		t.Fatal(err)
	}
	if again := m.ReadAt([]uint64{0}, [][]byte{make([]byte, 4)}); again == nil || errors.Is(again, native.ErrNotQuiescent) != stuck {
		t.Fatal(again)
	}
	if err := m.Close(); (err != nil) != stuck {
		t.Fatal(err)
	}
	<-time.After(400 * time.Millisecond) // for what may be late
}

func TestAHostWithoutADriverSaysSo(t *testing.T) {
	if _, err := native.LoadCUDA("libno-such-cuda.so.1"); err == nil {
		t.Fatal("it was loaded")
	}
}
