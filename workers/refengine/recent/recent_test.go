package recent

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRecentLosesItsOldestAndKeepsTheFirstValue(t *testing.T) {
	m := New[int, string](3)
	for i, v := range []string{"a", "b", "c", "d"} {
		m.Put(i, v)
	}
	m.Put(1, "later")
	if _, ok := m.Get(0); ok || len(m.m) != 3 || len(m.order) != 3 {
		t.Errorf("%+v", m)
	}
	if v, _ := m.Get(1); v != "b" {
		t.Errorf("the first value became %q", v)
	}
	m.Forget(2)
	m.Put(2, "new")
	m.Drop(func(v string) bool { return v != "new" })
	if v, _ := m.Get(2); v != "new" || len(m.m) != 1 || len(m.order) != 1 {
		t.Errorf("%+v", m)
	}
}
