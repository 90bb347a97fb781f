package tidy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/surehand/surehand"

// pkg is what go list tells of one package; paths inside the module are
// relative to it.
type pkg struct {
	path          string
	imports, deps []string
}

// wall forbids packages below From to import, or with Deep to depend on in any
// way, what is below one of Never; Except lists importers that may, each with its reason.
type wall struct {
	from   []string
	never  []string
	deep   bool
	except map[string]string
	reason string
}

const (
	temporal = "go.temporal.io"
	redis    = "github.com/redis"
	grpc     = "google.golang.org/grpc"
)

// walls is a statement of policy; it is changed on purpose only.
var walls = []wall{
	{from: []string{"contracts"}, never: []string{"activities", "workflows", "workers", "transferd", temporal, redis, "net", "net/http", "os", "os/exec"},
		except: map[string]string{"contracts/handoff/explore/cmd": "a command: reads its flags, writes its report"},
		reason: "contracts is the middle: what both sides promise, without I/O; everything may import it, it imports nobody"},
	{from: []string{"contracts/handoff", "contracts/layout"}, never: []string{"contracts/rpc", "contracts/gen", "contracts/steps", "contracts/wire", "contracts/capability", "contracts/fields",
		grpc, "google.golang.org/protobuf", "context", "sync", "sync/atomic", "math/rand", "math/rand/v2", "crypto/rand", "log/slog", "os", "net", "unsafe", "syscall", "runtime"},
		except: map[string]string{"contracts/handoff/explore/cmd": "a command"},
		reason: "the protocol is pure: no clock, socket, disk, goroutine or randomness, so it can be explored, replayed and embedded"},
	{from: []string{"contracts/layout"}, never: []string{"contracts/handoff/explore"}, reason: "layout needs ids, digests and errors only"},
	{from: []string{"workflows"}, never: []string{"activities", "workers", "transferd", redis, grpc, "net", "net/http", "os", "math/rand", "math/rand/v2", "crypto/rand", "sync", "go.temporal.io/sdk/client", "go.temporal.io/sdk/worker", "go.temporal.io/sdk/activity"},
		reason: "workflow code is replayed: it decides when, and calls nothing but Temporal's workflow API and contracts"},
	{from: []string{"activities"}, never: []string{"workflows", "workers"}, deep: true, reason: "activities implement steps; who runs them and when is not theirs"},
	{from: []string{"activities"}, never: []string{"transferd"}, except: map[string]string{"> transferd/client": "the one door to a daemon"},
		reason: "of transferd only its client"},
	{from: []string{"transferd"}, never: []string{temporal, redis, "activities", "workflows", "workers"}, deep: true,
		reason: "the daemon runs, and refuses, without Temporal and Redis"},
	{from: []string{""}, never: []string{"unsafe", "C", "github.com/ebitengine/purego", "golang.org/x/sys"},
		except: map[string]string{"transferd/internal/native": "the one place for native memory and raw system calls", "contracts/gen": "generated",
			"transferd/client": "passes file descriptors", "e2e": "builds faults out of system calls",
			"workers/llamacpp/libllama": "calls a C library that is loaded at run time; only the engine that runs on it imports it"},
		reason: "native memory is dangerous: one package, small enough to read"},
	{from: []string{""}, never: []string{"syscall"},
		except: map[string]string{"transferd/internal/native": "raw system calls", "transferd/client": "passes file descriptors", "transferd/cmd": "names of signals", "transferd/bench": "asks the kernel for CPU time used",
			"workers/cli": "names of signals", "workers/dev": "signals its child processes", "workers/port": "tells a name that is taken from other errors", "workers/vllmenv": "locks its cache, signals its engines' process groups", "e2e": "faults", "activities/engine/vllm": "tells error numbers of a dial apart: refused means not sent", "activities/engine/reference": "the same: refused means that the process is dead"},
		reason: "as above; names of signals and error numbers are the exceptions"},
	{from: []string{""}, never: []string{"e2e"}, except: map[string]string{"e2e": "itself"}, deep: true, reason: "nothing imports the proof"},
	{from: []string{""}, never: []string{"flag", "github.com/spf13/pflag", "github.com/spf13/cobra", "github.com/spf13/viper"},
		except: map[string]string{"workers/cli": "the command line", "main.go": "dispatches", "cmd": "commands", "e2e": "commands of the proof"},
		reason: "only commands read flags and environment; everything else is told"},
	{from: []string{"activities/ledger/memledger"}, never: []string{"activities/ledger/redisledger"}, reason: "adapters never import each other"},
	{from: []string{"activities/ledger/redisledger"}, never: []string{"activities/ledger/memledger"}, reason: "adapters never import each other"},
	{from: []string{"activities/engine"}, never: []string{"activities/engine/reference", "activities/engine/vllm", "activities/engine/sglang", "activities/engine/trtllm", "activities/engine/llamacpp"},
		except: map[string]string{"activities/engine/native": "drives an engine that brings no connector of its own; it is built on the HTTP client that vLLM's adapter is",
			"activities/engine/vllm": "its own tests' double"},
		reason: "adapters never import each other"},
	{from: []string{""}, never: []string{"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters"}, except: map[string]string{"transferd/otlp": "sends spans"},
		reason: "what is traced and where it goes are two things: packages know contracts/tracing, commands know transferd/otlp"},
	{from: []string{"transferd/transport/tcp"}, never: []string{"transferd/transport/local", "transferd/transport/ucx", "transferd/transport/cuda"}, reason: "adapters never import each other"},
	{from: []string{"transferd/transport/local"}, never: []string{"transferd/transport/tcp", "transferd/transport/ucx", "transferd/transport/cuda"}, reason: "adapters never import each other"},
}

// below says whether path is prefix or lies in it; "" holds everything.
func below(path, prefix string) bool {
	return prefix == "" || path == prefix || strings.HasPrefix(path, prefix+"/")
}

// excepted says whether an exception covers the importer, or, written "> path",
// the imported; "cmd" covers every command.
func (w wall) excepted(importer, imported string) bool {
	for k := range w.except {
		if to, ok := strings.CutPrefix(k, "> "); ok {
			if below(imported, to) {
				return true
			}
			continue
		}
		if below(importer, k) || k == "cmd" && slices.Contains(strings.Split(importer, "/"), "cmd") || k == "main.go" && importer == "." {
			return true
		}
	}
	return false
}

// breaks gives what of imported the wall forbids to importer.
func (w wall) breaks(importer, imported string) bool {
	from := slices.ContainsFunc(w.from, func(f string) bool { return below(importer, f) })
	// A package may import what lies below itself, such as its own internals.
	never := slices.ContainsFunc(w.never, func(n string) bool {
		return below(imported, n) && !below(importer, n) || imported == n && importer != n
	})
	return from && never && !w.excepted(importer, imported)
}

func TestImportsFollowThePolicy(t *testing.T) {
	packages := list(t)
	for _, w := range walls {
		for _, p := range packages {
			imports := p.imports
			if w.deep {
				imports = p.deps
			}
			for _, i := range imports {
				if w.breaks(p.path, i) {
					t.Errorf("%s imports %s: %s", p.path, i, w.reason)
				}
			}
		}
		for e, why := range w.except {
			if why == "" {
				t.Errorf("an exception without a reason: %s", e)
			}
		}
	}
}

// The checker is checked: imports that must be refused, and some that must not.
func TestThePolicyFindsForbiddenImports(t *testing.T) {
	broken := func(importer, imported string) bool {
		return slices.ContainsFunc(walls, func(w wall) bool { return w.breaks(importer, imported) })
	}
	for _, x := range [][2]string{{"contracts/handoff", "os"}, {"contracts/layout", "math/rand"}, {"contracts/rpc", "activities"}, {"workflows", "activities/ledger"},
		{"activities", "transferd/fence"}, {"transferd/fence", "go.temporal.io/sdk/client"}, {"transferd/pull", "unsafe"}, {"workers/gateway", "e2e/fault"},
		{"workers/gateway", "flag"}, {"activities/ledger/memledger", "activities/ledger/redisledger"}, {"activities/engine", "activities/engine/vllm"}} {
		if !broken(x[0], x[1]) {
			t.Errorf("%s may import %s", x[0], x[1])
		}
	}
	for _, x := range [][2]string{{"activities", "transferd/client"}, {"transferd/internal/native", "unsafe"}, {"workers/cli", "github.com/spf13/cobra"},
		{"transferd/cmd/transferd", "github.com/spf13/cobra"}, {"contracts/handoff/explore", "contracts/handoff"}, {"workflows", "contracts/handoff"}, {"e2e/scenario", "e2e/fault"}} {
		if broken(x[0], x[1]) {
			t.Errorf("%s may not import %s", x[0], x[1])
		}
	}
}

// list asks go list about every package of the module.
func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,Deps", "./...")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	dec := json.NewDecoder(bufio.NewReader(bytes.NewReader(out)))
	var all []pkg
	for dec.More() {
		var p struct {
			ImportPath    string
			Imports, Deps []string
		}
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, pkg{relative(p.ImportPath), relatives(p.Imports), relatives(p.Deps)})
	}
	if len(all) < 3 {
		t.Fatalf("go list found %d packages", len(all))
	}
	return all
}

func relative(path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

func relatives(paths []string) []string {
	out := make([]string, len(paths))
	for i, p := range paths {
		out[i] = relative(p)
	}
	return out
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
