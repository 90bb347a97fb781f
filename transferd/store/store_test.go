package store

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
)

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir, "n1")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEachStartIsOneMoreLife(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	first := life(t, dir)
	for more := range handoff.Incarnation(3) {
		if got := life(t, dir); got != first+more+1 {
			t.Fatalf("life %d, want %d", got, first+more+1)
		}
	}
}

// life is a whole one.
func life(t *testing.T, dir string) handoff.Incarnation {
	t.Helper()
	s := open(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return s.Incarnation
}

// A pod that is made anew, or a host whose disk was replaced, has lost its folder, and
// plans of the lives before still come.
func TestAFolderThatWasLostUsesNoLifeTwice(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	last := life(t, dir)
	for range 20 {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		life(t, dir)
		now := life(t, dir)
		if now <= last {
			t.Fatalf("life %d after %d", now, last)
		}
		last = now
	}
}

func TestTwoDaemonsNeverShareALife(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	defer s.Close()
	if _, err := Open(dir, "n1"); err == nil || !strings.Contains(err.Error(), "held by another process") {
		t.Fatal(err)
	}
}

func TestAFolderBelongsToOneNode(t *testing.T) {
	dir := t.TempDir()
	if err := open(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, "n2"); err == nil || !strings.Contains(err.Error(), "n1") {
		t.Fatal(err)
	}
}

func TestADamagedLifeIsNotGuessed(t *testing.T) {
	for _, text := range []string{"", "0", "-3", "seven", "99999999999999999999", strings.Repeat("1", maxFileBytes+1)} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, incarnationName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := Open(dir, "n1"); err == nil {
			t.Fatalf("%.20q gave life %d", text, s.Incarnation)
		}
	}
}

func TestADeathInTheMiddleOfAWriteLosesNothing(t *testing.T) {
	dir := t.TempDir()
	before := life(t, dir)
	if err := os.WriteFile(filepath.Join(dir, incarnationName+".next"), []byte("7"), 0o600); err != nil { // not renamed yet
		t.Fatal(err)
	}
	s := open(t, dir)
	defer s.Close()
	if s.Incarnation != before+1 {
		t.Fatal(s.Incarnation, before)
	}
}

func TestTheNextLifeKnowsWhoWasAttached(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if err := s.SetEngines([]handoff.EngineID{"d1", "p1"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	next := open(t, dir)
	defer next.Close()
	if !slices.Equal(next.Engines, []handoff.EngineID{"d1", "p1"}) {
		t.Fatal(next.Engines)
	}
}
