package explore

import "testing"

func BenchmarkSearch(b *testing.B) {
	for b.Loop() {
		Run(Scenario{Name: "bench"}, 0)
	}
}
