// Package fakecuda builds a libcuda for tests: device memory is shared files, and
// every argument and lifetime is checked. See testdata/fakecuda.c.
package fakecuda

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/surehand/surehand/transferd/internal/native"
)

//go:embed testdata/fakecuda.c
var source []byte

// Device is the UUID of the fake's n-th device.
func Device(n int) (d native.CUDADevice) {
	for i := range d {
		d[i] = byte(0xA0 + n)
	}
	return d
}

// Fake is one library and the folder of what it keeps.
type Fake struct{ Path, Dir string }

// Build compiles the library into a folder of its own; it skips the test where
// there is no C compiler.
func Build(t *testing.T) Fake {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("the fake libcuda needs a C compiler")
	}
	f := Fake{Dir: t.TempDir()}
	f.Path = filepath.Join(f.Dir, "libcuda.so")
	c := filepath.Join(f.Dir, "fakecuda.c")
	if err := os.WriteFile(c, source, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", f.Path, c, "-lpthread", "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return f
}

// Log is what the library's processes did, and what of it was a violation.
func (f Fake) Log(t *testing.T) (lines, violations []string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(f.Dir, "log.*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.FieldsFuncSeq(string(b), func(r rune) bool { return r == '\n' }) {
			lines = append(lines, line)
			if strings.HasPrefix(line, "violation") {
				violations = append(violations, line)
			}
		}
	}
	return lines, violations
}

// Count counts the lines that begin so.
func Count(lines []string, prefix string) int {
	return len(slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !strings.HasPrefix(l, prefix) }))
}

// MustBeClean fails the test when something was misused or not given back.
func (f Fake) MustBeClean(t *testing.T) {
	t.Helper()
	lines, violations := f.Log(t)
	if len(violations) > 0 {
		t.Errorf("the driver was misused: %q", violations)
	}
	for open, closed := range map[string]string{"alloc": "free", "ipc_open": "ipc_close", "pin": "unpin", "stream": "unstream", "retain": "release"} {
		if o, c := Count(lines, open), Count(lines, closed); o != c {
			t.Errorf("%d %s, %d %s", o, open, c, closed)
		}
	}
	if len(lines) == 0 {
		t.Error("the driver was never used")
	}
}
