package orchestrator

import (
	"slices"
	"testing"
)

// What a daemon names is its handoff's while that runs. What is only counted is
// nobody's once it is more than the handoffs that run and hold nothing there.
func TestWhatIsCountedIsNobodysOnceItIsMoreThanWhatRuns(t *testing.T) {
	target := func(public string) holding { return holding{engine: "d1", kind: heldTarget, public: public} }
	promises := func(n uint32) holding { return holding{engine: "d1", kind: heldPromise, count: n} }
	running := map[string]string{"a": "t/a", "b": "t/b"}
	for name, c := range map[string]struct {
		held []holding
		want []string
	}{
		"a target of a handoff that runs":                 {[]holding{target("a")}, []string{"t/a"}},
		"a target of one that is over":                    {[]holding{target("z")}, []string{""}},
		"a promise while another begins":                  {[]holding{target("a"), promises(1)}, []string{"t/a", beginning}},
		"two, where one begins":                           {[]holding{target("a"), promises(2)}, []string{"t/a", ""}},
		"two epochs of one handoff":                       {[]holding{target("a"), target("a"), promises(1)}, []string{"t/a", "t/a", beginning}},
		"those of another engine do not matter":           {[]holding{{engine: "d2", kind: heldTarget, public: "a"}, promises(2)}, []string{"t/a", beginning}},
		"an engine that keeps more than its daemon knows": {[]holding{{engine: "p1", kind: heldEngine, count: 3}}, []string{""}},
	} {
		own(c.held, running)
		var got []string
		for _, h := range c.held {
			got = append(got, h.owner)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
