package rail

import (
	"fmt"
	"testing"
	"time"
)

// kvcache-ai/Mooncake#3299, #397: a failed rail pauses and doubles, the others go on.
func TestAFailedRailPausesAndDoublesWhileTheOthersCarryOn(t *testing.T) {
	var b Book
	now := time.Unix(0, 0)
	rails := []string{"a", "b"}
	for pause := pauseMin; pause < pauseMax; pause *= 2 {
		if got, wait := b.Choose(now, rails); got != "a" || wait != 0 {
			t.Fatal(got, wait)
		}
		b.Failed(now, "a")
		if got, wait := b.Choose(now, rails); got != "b" || wait != 0 {
			t.Fatal(got, wait)
		}
		if got, wait := b.Choose(now, rails[:1]); got != "a" || wait != pause {
			t.Fatal(got, wait, pause)
		}
		now = now.Add(pause)
	}
	for range 10 {
		b.Failed(now, "a")
	}
	if _, wait := b.Choose(now, rails[:1]); wait != pauseMax {
		t.Fatal(wait)
	}
	b.Worked("a")
	if got, _ := b.Choose(now, rails); got != "a" {
		t.Fatal(got)
	}
}

func TestTheBookIsBounded(t *testing.T) {
	var b Book
	for i := range maxPaused + 100 {
		b.Failed(time.Unix(int64(i), 0), fmt.Sprint(i))
	}
	if len(b.bad) != maxPaused {
		t.Fatal(len(b.bad))
	}
}
