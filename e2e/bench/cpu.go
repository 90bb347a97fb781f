package bench

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// generator is the row of this process: for the bare floor, the proxy too.
const generator = "generator"

func (b *bench) cpu() (map[string]time.Duration, error) {
	out, err := b.f.CPU()
	if err != nil {
		return nil, err
	}
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return nil, err
	}
	out[generator] = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	return out, nil
}

// loadAverage of the last minute.
func loadAverage() (one float64, err error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	_, err = fmt.Sscan(string(text), &one)
	return one, err
}
