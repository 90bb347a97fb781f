package explore

import (
	"strings"
	"testing"
)

func TestTwoRequestsOnTheSameDaemonsAreLikeOne(t *testing.T) {
	for _, sc := range Pairs {
		c := ClosePair(sc, shortStates)
		t.Log(c)
		if c.Failed() {
			t.Fatalf("%s\n%s", c.Violation, strings.Join(c.Trace, "\n"))
		}
	}
}

// With a rule left out two requests break as one does.
func TestTwoRequestsBreakWithoutTheFence(t *testing.T) {
	c := ClosePair(Scenario{Quick: true, Quicker: true, Omit: Mutants[0].Omit}, 200_000)
	if !strings.HasPrefix(c.Violation, Mutants[0].Breaks+":") {
		t.Error(c)
	}
}

// A step that reached over would be told: here one request's world is changed
// behind the other's back.
func TestAStepThatChangesTheOtherRequestIsFound(t *testing.T) {
	a, _ := initialOf(Scenario{Quick: true}, "r", nil)
	b := a.fork()
	if !a.same(b) {
		t.Error("a copy differs")
	}
	b = b.fork()
	if b.send(msgRelease, e1); a.same(b) {
		t.Error("a message more is not seen")
	}
}
