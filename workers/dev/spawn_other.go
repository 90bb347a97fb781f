//go:build !linux

package dev

import (
	"os/exec"
	"syscall"
)

// spawner without a kernel that ties children to their parent: a kill -9 of
// this process leaves them behind.
type spawner struct{}

func newSpawner() *spawner { return &spawner{} }

func (s *spawner) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.Start()
}

func (s *spawner) close() {}

func signalGroup(pid int, s syscall.Signal) error { return syscall.Kill(-pid, s) }
