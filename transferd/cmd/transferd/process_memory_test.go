package main

import (
	"bytes"
	"testing"

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
