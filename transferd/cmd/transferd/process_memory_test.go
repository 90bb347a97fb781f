package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
)

// The engine is this process, the daemons are others: they read and write its
// plain memory by process_vm_readv and process_vm_writev.
func TestPlainMemoryOfAnotherProcessIsMoved(t *testing.T) {
	ph := start(t, "tp", t.TempDir(), "127.0.0.1:0")
	dh := start(t, "td", t.TempDir(), "127.0.0.1:0")
	plain := func() *client.Memory {
		m, err := client.NewPlainMemory(segment + 4096) // with canaries at the end
		check(t, err)
		copy(m.Bytes()[segment:], bytes.Repeat([]byte{0xca}, 4096))
		return m
	}
	p, d := attachMemory(t, ph, "p1", plain()), attachMemory(t, dh, "d1", plain())
	m := prepare(t, ph, p, d, "h-1")
	_, err := dh.control.Pull(background(t), m.spec, nil)
	check(t, err)
	ans, err := m.commit(t, dh)
	check(t, err)
	if ans.State != handoff.TargetCommitted || !bytes.Equal(p.memory.Bytes()[:segment], d.memory.Bytes()[:segment]) {
		t.Fatalf("%+v", ans)
	}
	if !bytes.Equal(d.memory.Bytes()[segment:], bytes.Repeat([]byte{0xca}, 4096)) {
		t.Fatal("a byte landed past the target")
	}
	d.await(t, client.TargetCommitted)
}

const forbiddenVariable = "TRANSFERD_TEST_FORBIDDEN"

// beForbidden begins this program anew below a filter of the kernel that refuses
// process_vm_readv and process_vm_writev, as a container's profile does.
func beForbidden() error {
	runtime.LockOSThread() // the filter is of this thread, and of what it executes
	load := unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	equal := unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	answer := unix.BPF_RET | unix.BPF_K
	program := []unix.SockFilter{
		{Code: uint16(load), K: 0}, // the number of the call
		{Code: uint16(equal), Jt: 1, K: unix.SYS_PROCESS_VM_READV},
		{Code: uint16(equal), Jf: 1, K: unix.SYS_PROCESS_VM_WRITEV},
		{Code: uint16(answer), K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: uint16(answer), K: unix.SECCOMP_RET_ALLOW},
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&filter)), 0, 0); err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	return syscall.Exec(os.Args[0], os.Args, slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, forbiddenVariable+"=") }))
}

// openucx/ucx#3046, #8958, pytorch/tensorpipe#188: a daemon whose kernel forbids it says
// so and what to do, when it starts and to each engine with plain memory. It serves all
// other memory, and does not crash.
func TestADaemonWhoseKernelForbidsProcessMemoryServesTheRest(t *testing.T) {
	dh := start(t, "td", t.TempDir(), "127.0.0.1:0")
	t.Setenv(forbiddenVariable, "1")
	ph := start(t, "tp", t.TempDir(), "127.0.0.1:0")
	plain, err := client.NewPlainMemory(segment)
	check(t, err)
	defer func() { check(t, plain.Close()) }()
	_, err = client.Attach(background(t), client.EngineConfig{Socket: ph.Socket, Engine: "p1", Revision: shape.Revision, Layout: shape.Layout, Segment: plain, FlagSlots: 4})
	wantCode(t, err, handoff.CodeDenied)
	if !strings.Contains(err.Error(), "the kernel forbids it") || !strings.Contains(err.Error(), "ptrace_scope") {
		t.Fatal(err)
	}
	other, err := client.NewPlainMemory(segment) // the other host may
	check(t, err)
	p, d := attach(t, ph, "p1"), attachMemory(t, dh, "d1", other)
	m := prepare(t, ph, p, d, "h-1")
	_, err = dh.control.Pull(background(t), m.spec, nil)
	check(t, err)
	if !bytes.Equal(p.memory.Bytes()[:segment], d.memory.Bytes()[:segment]) {
		t.Fatal("bytes differ")
	}
	check(t, ph.kill(syscall.SIGTERM))
	if log := ph.log.String(); !strings.Contains(log, "engines with plain memory are refused") || !strings.Contains(log, "the kernel forbids it") {
		t.Fatal("it did not say so when it started: ", log)
	}
}
