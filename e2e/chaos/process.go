package chaos

import (
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	register(Fault{Name: "kill", About: "SIGKILL; started again on the same addresses and data", Victims: []string{"*"}, Expect: dies,
		Inject: func(_ context.Context, s *Stage, v string) (Heal, error) { return healed, s.Process(v).Kill() }})
	register(Fault{Name: "terminate", About: "SIGTERM: an orderly end in the middle of work, then started again", Victims: []string{"*"}, Expect: terminated,
		Inject: func(_ context.Context, s *Stage, v string) (Heal, error) {
			ended := make(chan error, 1)
			go func() { ended <- s.Process(v).Stop() }() // it may finish its streams first
			return func(context.Context) error { return <-ended }, nil
		}})
	register(Fault{Name: "pause", About: "SIGSTOP past every lease, then SIGCONT: it wakes with the past in its hands", Victims: []string{"*"}, Expect: hangs,
		Inject: func(_ context.Context, s *Stage, v string) (Heal, error) {
			return func(context.Context) error { return s.Process(v).Resume() }, s.Process(v).Pause()
		}})
	register(Fault{Name: "stutter", About: "stopped for 90 of every 100 ms: slow, not silent", Victims: []string{"*"}, Expect: hangs, Inject: stutter})
	register(Fault{Name: "no-descriptors", About: "its limit of open files is what it has open: nothing new can be opened", Victims: []string{"*"}, Expect: hangs, Inject: noDescriptors})
}

// terminated: an orderly end is a death that may be polite.
var terminated = map[string]Expected{"g1": gone, "p1": "EEEEWWLW", "tp1": "EEEEWWLW", "d1": "EEEEEELW", "td1": keeps, "redis": promises, "temporal": decides}

func stutter(_ context.Context, s *Stage, v string) (Heal, error) {
	const on, off = 10 * time.Millisecond, 90 * time.Millisecond
	p := s.Process(v)
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		var failed error
		for {
			failed = errors.Join(failed, p.Pause())
			wait := time.NewTimer(off)
			select {
			case <-wait.C:
			case <-stop:
				wait.Stop()
				ended <- errors.Join(failed, p.Resume())
				return
			}
			failed = errors.Join(failed, p.Resume())
			wait.Reset(on)
			<-wait.C
		}
	}()
	return func(context.Context) error {
		close(stop)
		return <-ended
	}, nil
}

func noDescriptors(_ context.Context, s *Stage, v string) (Heal, error) {
	pid := s.Process(v).PID()
	open, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
	if err != nil {
		return nil, err
	}
	var was unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &was); err != nil {
		return nil, err
	}
	limit := unix.Rlimit{Cur: uint64(len(open)), Max: was.Max}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		return nil, err
	}
	return func(context.Context) error {
		err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &was, nil)
		if errors.Is(err, unix.ESRCH) { // it did not survive; the fleet starts it again
			return nil
		}
		return err
	}, nil
}
