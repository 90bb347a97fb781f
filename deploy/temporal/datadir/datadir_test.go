package datadir

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var mine = Made{Server: "1.32.2", Schema: "0.11", Visibility: "0.1", Shards: 1}

func open(t *testing.T, path string) *Dir {
	t.Helper()
	dir, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() }) // some tests close it themselves
	return dir
}

// creator makes both files with this text in them and counts its calls.
func creator(t *testing.T, dir *Dir, text string, calls *int) func() error {
	t.Helper()
	return func() error {
		*calls++
		return errors.Join(os.WriteFile(dir.Main(), []byte(text), fileMode), os.WriteFile(dir.Visibility(), []byte(text), fileMode))
	}
}

func TestTheSchemaIsMadeOnce(t *testing.T) {
	dir, calls := open(t, t.TempDir()), 0
	for range 3 {
		if err := dir.Prepare(mine, creator(t, dir, "x", &calls)); err != nil {
			t.Fatal(err)
		}
	}
	if calls != 1 {
		t.Fatalf("made %d times", calls)
	}
}

func TestASetUpThatWasCutShortIsDoneAnew(t *testing.T) {
	dir, calls := open(t, t.TempDir()), 0
	cut := errors.New("cut short")
	err := dir.Prepare(mine, func() error { return errors.Join(creator(t, dir, "half", &calls)(), cut) })
	if !errors.Is(err, cut) {
		t.Fatal(err)
	}
	if err := dir.Prepare(mine, creator(t, dir, "whole", &calls)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(dir.Main())
	if err != nil || string(text) != "whole" || calls != 2 {
		t.Fatalf("%q after %d calls, %v", text, calls, err)
	}
}

func TestDataOfAnotherVersionIsLeftAlone(t *testing.T) {
	dir, calls := open(t, t.TempDir()), 0
	if err := dir.Prepare(mine, creator(t, dir, "old", &calls)); err != nil {
		t.Fatal(err)
	}
	for _, other := range []Made{
		{Server: "1.33.0", Schema: "0.11", Visibility: "0.1", Shards: 1},
		{Server: "1.32.2", Schema: "0.12", Visibility: "0.1", Shards: 1},
		{Server: "1.32.2", Schema: "0.11", Visibility: "0.1", Shards: 4},
	} {
		err := dir.Prepare(other, creator(t, dir, "new", &calls))
		if !errors.Is(err, ErrOtherVersion) || !strings.Contains(err.Error(), "name another --data") {
			t.Errorf("%+v: %v", other, err)
		}
	}
	if text, err := os.ReadFile(dir.Main()); err != nil || string(text) != "old" || calls != 1 {
		t.Fatalf("%q after %d calls, %v", text, calls, err)
	}
}

func TestFilesNothingVouchesForAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(dir *Dir) error{
		"a database alone": func(dir *Dir) error { return os.WriteFile(dir.Main(), nil, fileMode) },
		"no JSON":          func(dir *Dir) error { return writeVersion(dir, "{") },
		"too large":        func(dir *Dir) error { return writeVersion(dir, strings.Repeat(" ", maxVersionBytes+1)) },
		"a lost database": func(dir *Dir) error {
			return dir.write(record{Made: mine, Complete: true})
		},
	} {
		dir, calls := open(t, t.TempDir()), 0
		if err := spoil(dir); err != nil {
			t.Fatal(err)
		}
		if err := dir.Prepare(mine, creator(t, dir, "x", &calls)); !errors.Is(err, ErrUnknownOrigin) || calls != 0 {
			t.Errorf("%s: %v, made %d times", name, err, calls)
		}
	}
}

func writeVersion(dir *Dir, text string) error {
	return os.WriteFile(filepath.Join(dir.path, versionFile), []byte(text), fileMode)
}

func TestOneServerAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "on the way")
	first := open(t, path)
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(impatient, path); !errors.Is(err, ErrInUse) {
		t.Fatal(err)
	}
	time.AfterFunc(2*lockEvery, func() { _ = first.Close() })
	open(t, path) // waits for the first to let go
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != directoryMode {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
}
