package explore

import (
	"reflect"
	"strings"
	"testing"
)

// Both walks, and no step of one request changes what is the other's.
func TestAProductIsThePair(t *testing.T) {
	for _, sc := range Pairs {
		most := shortStates
		if !brief() && sc.Name == "both may commit" {
			most = 0 // to the end
		}
		c := same(t, sc, most)
		t.Log(c)
		if c.Failed() || most == 0 && !c.Complete {
			t.Fatalf("%s\n%s", c, strings.Join(c.Trace, "\n"))
		}
	}
}

func same(t *testing.T, sc Scenario, most int) Closure {
	t.Helper()
	a, b := CloseTogether(sc, most), ClosePair(sc, most)
	a.Alone = b.Alone
	if !reflect.DeepEqual(a, b) {
		t.Errorf("in the same tables: %s\n%s\nas a product: %s\n%s", a, strings.Join(a.Trace, "\n"), b, strings.Join(b.Trace, "\n"))
	}
	return b
}

// With a rule left out two requests break as one does, and both walks say where.
func TestTwoRequestsBreakWithoutTheFence(t *testing.T) {
	c := same(t, Scenario{Quick: true, Quicker: true, Omit: Mutants[0].Omit}, 200_000)
	if !strings.HasPrefix(c.Violation, Mutants[0].Breaks+":") {
		t.Error(c)
	}
}

// A step that reached over would be told: here one request's world is changed
// behind the other's back.
func TestAStepThatChangesTheOtherRequestIsFound(t *testing.T) {
	a, _ := initial(Scenario{Quick: true})
	b := a.fork()
	if !a.same(b) {
		t.Error("a copy differs")
	}
	b = b.fork()
	if b.send(msgRelease, e1); a.same(b) {
		t.Error("a message more is not seen")
	}
}
