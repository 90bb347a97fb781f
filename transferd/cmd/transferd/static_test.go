package main

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The build for images without a dynamic linker, such as FROM scratch: it is static,
// serves, and topo and bench say what it leaves out instead of failing.
func TestTheStaticBuildSaysWhatItLeavesOut(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the daemon")
	}
	path := filepath.Join(t.TempDir(), "transferd")
	build := exec.Command("go", "build", "-tags", "nocuda", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	f, err := elf.Open(path)
	check(t, err)
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Fatal("it needs a dynamic linker")
		}
	}
	for _, arguments := range [][]string{{"topo"}, {"bench", "--tables", "1MiB", "--bytes", "1048576", "--rounds", "1", "--pairs", "1", "--only", "memfd + crc32c"}} {
		out, err := exec.Command(path, arguments...).CombinedOutput()
		check(t, err)
		if text := string(out); !strings.Contains(text, "device memory: this build loads no CUDA driver") || !strings.Contains(text, "absent") {
			t.Fatalf("%v says\n%s", arguments, text)
		}
	}

	dir := t.TempDir()
	var log bytes.Buffer
	cmd := exec.Command(path, "--node", "p0", "--data", dir, "--die-with-parent")
	cmd.Stderr = &log
	ready, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	stuck := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer stuck.Stop()
	line := make([]byte, 512)
	n, err := ready.Read(line)
	check(t, err)
	check(t, cmd.Process.Signal(os.Interrupt))
	check(t, cmd.Wait())
	if !strings.Contains(string(line[:n]), `"ready":true`) || !strings.Contains(log.String(), "engines with device memory are refused") {
		t.Fatalf("%s\n%s", line[:n], log.String())
	}
}
