package refengine

import "testing"

func TestRecentLosesItsOldestAndKeepsTheFirstValue(t *testing.T) {
	m := newRecent[int, string](3)
	for i, v := range []string{"a", "b", "c", "d"} {
		m.put(i, v)
	}
	m.put(1, "later")
	if _, ok := m.get(0); ok || len(m.m) != 3 || len(m.order) != 3 {
		t.Errorf("%+v", m)
	}
	if v, _ := m.get(1); v != "b" {
		t.Errorf("the first value became %q", v)
	}
	m.forget(2)
	m.put(2, "new")
	m.drop(func(v string) bool { return v != "new" })
	if v, _ := m.get(2); v != "new" || len(m.m) != 1 || len(m.order) != 1 {
		t.Errorf("%+v", m)
	}
}
