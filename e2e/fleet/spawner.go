package fleet

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// spawner starts processes that the kernel kills when this one dies. The
// kernel means the thread that started them, so one thread does, and stays.
type spawner struct {
	work chan func()
	over chan struct{}
}

func newSpawner() *spawner {
	s := &spawner{work: make(chan func()), over: make(chan struct{})}
	go s.run()
	return s
}

func (s *spawner) run() {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if syscall.Gettid() == os.Getpid() {
		go s.run() // the main thread never ends: while it is held, this gets another
		<-s.over
		runtime.UnlockOSThread()
		return
	}
	defer close(s.over)
	for f := range s.work {
		f()
	}
}

func (s *spawner) start(c *exec.Cmd) error {
	if c.SysProcAttr == nil {
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	c.SysProcAttr.Pdeathsig = syscall.SIGKILL
	failed := make(chan error)
	s.work <- func() { failed <- c.Start() }
	return <-failed
}

// close ends the thread; what it started must have ended before.
func (s *spawner) close() {
	close(s.work)
	<-s.over
}
