package dev

import (
	"os/exec"
	"runtime"
	"syscall"
)

// spawner starts processes that the kernel kills when this process dies. The
// kernel ties that to the *thread* that forked, and Go's threads come and go;
// so one goroutine holds one thread for as long as there are children.
type spawner struct {
	work chan func()
	done chan struct{}
}

func newSpawner() *spawner {
	s := &spawner{work: make(chan func()), done: make(chan struct{})}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		defer close(s.done)
		for f := range s.work {
			f()
		}
	}()
	return s
}

// start runs cmd in a process group of its own, so that a Ctrl-C in the
// terminal reaches this process alone and the order of the drain is ours.
func (s *spawner) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	result := make(chan error)
	s.work <- func() { result <- cmd.Start() }
	return <-result
}

// close ends the thread, and with it every child that is left.
func (s *spawner) close() {
	close(s.work)
	<-s.done
}

// signalGroup reaches the whole process group of a child that is not reaped yet.
func signalGroup(pid int, s syscall.Signal) error { return syscall.Kill(-pid, s) }
