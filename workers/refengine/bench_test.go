package refengine

import (
	"syscall"
	"testing"
	"time"

	"github.com/surehand/surehand/activities/engine"
)

// BenchmarkSyntheticHandoff shows what a handoff costs the engines and their
// gRPC: CPU of client, P and D together, without transferd.
func BenchmarkSyntheticHandoff(b *testing.B) {
	r := newRig(b, synthetic())
	a := ask{prompt: make([]byte, 500), sampling: engine.Sampling{MaxTokens: 32}}
	before := cpu(b)
	for b.Loop() {
		if _, err := r.handoff(a); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-us/op")
}

func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
