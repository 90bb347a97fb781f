package vllm

import (
	"testing"
	"time"

	"github.com/surehand/surehand/e2e/pair"
)

const lookEvery = 50 * time.Millisecond

func look(t *testing.T, url string) pair.Counters {
	t.Helper()
	c, err := pair.Look(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !ok(); time.Sleep(lookEvery) {
		if time.Now().After(deadline) {
			t.Fatalf("did not come true in time: %s", what)
		}
	}
}

// empty says that an engine holds no block and runs nothing.
func empty(t *testing.T, url string) bool {
	c, err := pair.Look(t.Context(), url)
	return err == nil && c.Sum(pair.Usage, "", "") == 0 && c.Sum(pair.Running, "", "")+c.Sum(pair.Waiting, "", "") == 0
}

// rest says that every block of P and D is free again. It gives how long that took.
func rest(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	eventually(t, "P holds nothing", func() bool { return empty(t, rig.P.URL) })
	eventually(t, "D holds nothing", func() bool { return empty(t, rig.D.URL) })
	return time.Since(began)
}
