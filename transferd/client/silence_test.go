package client

import (
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// However long a silence is told, the kernel begins to probe well within it and gives
// up no sooner and less than one probe later.
func TestTheKernelIsToldTheWholeSilence(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for told, want := range map[time.Duration]time.Duration{0: Silence, time.Millisecond: SilenceMin, 2 * time.Second: 2 * time.Second, 3 * time.Second: 3 * time.Second,
		3500 * time.Millisecond: 3500 * time.Millisecond, 10 * time.Second: 10 * time.Second, time.Minute: time.Minute} {
		c, err := Dialer(told).Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var on, idle, interval, count int
		cerr := raw.Control(func(fd uintptr) {
			var errs [4]error
			on, errs[0] = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE)
			idle, errs[1] = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE)
			interval, errs[2] = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPINTVL)
			count, errs[3] = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPCNT)
			err = errors.Join(errs[:]...)
		})
		if err := errors.Join(err, cerr, c.Close()); err != nil {
			t.Fatal(err)
		}
		over := time.Duration(idle+interval*count) * time.Second
		if on != 1 || over < want || over >= want+probeEvery || time.Duration(idle)*time.Second > max(probeEvery, want/3) {
			t.Errorf("%s: probed %d after %d s and each %d s, over after %s", told, count, idle, interval, over)
		}
	}
}
