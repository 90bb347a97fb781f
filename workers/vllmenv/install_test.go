package vllmenv

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestAStepIsMadeOnceAndAnewWhenItsInputsChange(t *testing.T) {
	e := at(t.TempDir())
	made := 0
	s := step{name: "x", of: "one", run: func(context.Context, io.Writer) error {
		made++
		return os.MkdirAll(filepath.Join(e.Dir, "x"), 0o755)
	}}
	for _, of := range []string{"one", "one", "two"} {
		s.of = of
		if !s.done(e) {
			if err := s.make(t.Context(), e, io.Discard); err != nil {
				t.Fatal(err)
			}
		}
	}
	if made != 2 {
		t.Errorf("made %d times", made)
	}
}

func TestAStepThatFailedHalfWayIsBegunFromNothing(t *testing.T) {
	e := at(t.TempDir())
	half := filepath.Join(e.Dir, "x", "half")
	s := step{name: "x", run: func(context.Context, io.Writer) error {
		if _, err := os.Stat(half); err == nil {
			t.Error("what an earlier run left is still there")
		}
		return errors.Join(os.MkdirAll(half, 0o755), errors.New("no network"))
	}}
	for range 2 {
		if err := s.make(t.Context(), e, io.Discard); err == nil || s.done(e) {
			t.Errorf("done although it failed: %v", err)
		}
	}
}

func TestWhatAClientSaidLastIsInTheError(t *testing.T) {
	e := at(t.TempDir())
	var out bytes.Buffer
	err := e.tell(t.Context(), &out, "sh", "-c", "echo looking; echo no route to the packages >&2; exit 3")
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "no route to the packages") || !strings.Contains(out.String(), "  looking\n") {
		t.Errorf("%v, progress %q", err, out.String())
	}
}

func TestOneProcessInstallsAndAnotherWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), path, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	if _, err := lock(ctx, path, &out); !errors.Is(err, context.Canceled) || out.Len() == 0 {
		t.Errorf("%v, told %q", err, out.String())
	}
	unlock()
	if unlock, err = lock(t.Context(), path, io.Discard); err != nil {
		t.Fatal(err)
	}
	unlock()
}

// A library that wants versioned and unversioned symbols of a missing one loads
// once the stand-in is there.
func TestAStandInHasWhatIsWantedOfTheMissingLibrary(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("no gcc")
	}
	dir, gpu, stubs := t.TempDir(), t.TempDir(), t.TempDir()
	gcc := func(dir, source string, args ...string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "source.c"), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		c := exec.Command("gcc", append([]string{"-w", "-shared", "-fPIC", "source.c"}, args...)...)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(gpu, "map"), []byte("libcudart.so.13 { global: cudaFree; };\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	gcc(gpu, "int cudaFree(){return 0;}", "-o", "libcudart.so.13", "-Wl,-soname,libcudart.so.13", "-Wl,--version-script=map")
	gcc(gpu, "int cuInit(){return 0;}", "-o", "libcuda.so.1", "-Wl,-soname,libcuda.so.1")
	gcc(dir, "int cudaFree(); int cuInit(); int mine(){return 0;} int use(){return cudaFree()+cuInit()+mine();}", "-o", "libtorch.so",
		filepath.Join(gpu, "libcudart.so.13"), filepath.Join(gpu, "libcuda.so.1"))
	libraries, err := standIns(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !libraries["libcudart.so.13"]["libcudart.so.13"]["cudaFree"] || !libraries["libcuda.so.1"][""]["cuInit"] || len(libraries) != 2 {
		t.Fatalf("%v", libraries)
	}
	for name, l := range libraries {
		if err := l.build(t.Context(), stubs, name); err != nil {
			t.Fatal(err)
		}
	}
	f, err := elf.Open(filepath.Join(stubs, "libcudart.so.13"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil || !slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == "cudaFree" && s.Version == "libcudart.so.13" }) {
		t.Errorf("%v %v", symbols, err)
	}
}
