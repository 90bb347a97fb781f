package model

import (
	"fmt"
	"testing"
)

func BenchmarkPrefill(b *testing.B) {
	for _, n := range []int{256, 1024, 2048, 4096} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r, tokens := load(b).NewRunner(), prompt(n)
			for b.Loop() {
				forward(b, r, newState(n), tokens, 64)
			}
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, n := range []int{64, 512, 2048, 4096} {
		b.Run(fmt.Sprintf("after %d", n), func(b *testing.B) {
			r, s := load(b).NewRunner(), newState(n+1)
			forward(b, r, s, prompt(n), 64)
			for b.Loop() {
				s.Pos = n // decode the same position again
				forward(b, r, s, []int{'e'}, 1)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/1000, "ms/token")
		})
	}
}
