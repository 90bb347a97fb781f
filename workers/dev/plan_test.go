package dev

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func config(t *testing.T) Config {
	return Config{Engine: EngineReference, Data: t.TempDir(), Listen: "127.0.0.1:0", GRPC: "127.0.0.1:0", UI: "127.0.0.1:0", TemporalListen: "127.0.0.1:0",
		Prefill: 2, Decode: 1, Self: "/bin/surehand", Cache: t.TempDir()}
}

func TestATakenPortGivesTheNextOneAndIsSaid(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	p := newPorts()
	defer p.close()
	got, err := p.wish("HTTP", taken.Addr().String())
	if err != nil || got == taken.Addr().String() {
		t.Fatal(got, err)
	}
	again, err := p.wish("gRPC", taken.Addr().String())
	if err != nil || again == got {
		t.Fatal(again, err)
	}
	if len(p.moved) != 2 || !strings.Contains(p.moved[0], "is taken, using") {
		t.Fatal(p.moved)
	}
}

func TestDevListensOnLoopbackOnly(t *testing.T) {
	for _, address := range []string{"0.0.0.0:80", ":80", "[::]:80", "10.0.0.1:80", "example:80"} {
		if got, err := newPorts().wish("HTTP", address); !errors.Is(err, ErrNotLoopback) {
			t.Errorf("%s: %s %v", address, got, err)
		}
	}
	for _, address := range []string{"127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000"} {
		if got, err := newPorts().wish("HTTP", address); err == nil {
			t.Errorf("%s: %s", address, got)
		}
	}
}

func planned(t *testing.T, c Config, with programs) *plan {
	t.Helper()
	p, err := newPlan(c, with)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// A vLLM listens long after its port was chosen, and what waits for it later still.
// unused is an address that somebody may wish for: nobody listens or means to there.
func unused(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestTwoDevsShareNoPortThoughNobodyListensYet(t *testing.T) {
	c := config(t)
	c.Engine, c.Listen, c.GRPC = EngineVLLM, unused(t), unused(t)
	with := programs{engine: engines{server: func(at seat) (Spec, []string, error) {
		return Spec{Name: "vllm-" + at.id, Grace: vllmGrace, Addresses: map[string]string{"http": at.listen}}, nil, nil
	}}}
	seen := map[string]string{}
	note := func(p *plan, whose string) {
		for _, s := range p.specs {
			for what, address := range s.Addresses {
				if other := seen[address]; other != "" && what != "socket" {
					t.Errorf("%s of %s of the %s dev is also %s", what, s.Name, whose, other)
				}
				seen[address] = s.Name + " of the " + whose
			}
		}
	}
	first := planned(t, c, with)
	note(first, "first")
	c.Data = t.TempDir()
	second := planned(t, c, with)
	note(second, "second")
	if len(second.ports.moved) < 2 {
		t.Errorf("it says of no wished port that it is taken: %q", second.ports.moved)
	}
	if seen[c.Listen] == "" || len(seen) < 40 {
		t.Fatalf("%d addresses: this compared nothing", len(seen))
	}
}

func TestThePlanHasEveryProcessOnceOnItsOwnPorts(t *testing.T) {
	p := planned(t, config(t), programs{self: "/bin/surehand", transferd: "/bin/transferd", temporal: "/bin/temporal"})
	var names []string
	seen := map[string]string{}
	for _, s := range p.specs {
		names = append(names, s.Name)
		if s.Grace == 0 {
			t.Errorf("%s has no grace", s.Name)
		}
		for what, address := range s.Addresses {
			if other, twice := seen[address]; twice {
				t.Errorf("%s of %s is also %s", address, s.Name, other)
			}
			seen[address] = s.Name + " " + what
			if what != "socket" && !strings.HasPrefix(address, "127.0.0.1:") {
				t.Errorf("%s %s is %s", s.Name, what, address)
			}
		}
	}
	slices.Sort(names)
	if want := "d1 gateway p1 p2 store temporal transferd-d1 transferd-p1 transferd-p2"; strings.Join(names, " ") != want {
		t.Fatal(names)
	}
}

func TestRealServicesTakeThePlaceOfEmbeddedOnes(t *testing.T) {
	c := config(t)
	c.Temporal, c.Redis = "temporal.example:7233", "rediss://redis.example"
	c.GatewayArgs = []string{"--namespace", "mine"}
	p := planned(t, c, programs{self: "/bin/surehand", transferd: "/bin/transferd"})
	for _, s := range p.specs {
		if s.Name == nameTemporal || s.Name == nameStore {
			t.Error(s.Name)
		}
		line := strings.Join(s.Args, " ")
		if s.Name == nameGateway && !strings.Contains(line, "--temporal temporal.example:7233 --redis rediss://redis.example") {
			t.Error(line)
		}
		if s.Name == nameGateway && !strings.HasSuffix(line, "--namespace mine") {
			t.Error(line)
		}
	}
}

func TestALongDataPathKeepsSocketsShort(t *testing.T) {
	c := config(t)
	c.Data = filepath.Join(c.Data, strings.Repeat("long", 30))
	p, err := newPlan(c, programs{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range p.specs {
		if socket := s.Addresses["socket"]; len(socket) > socketPathMost {
			t.Error(socket)
		}
	}
	if err := p.close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.folder); !os.IsNotExist(err) {
		t.Fatal("the sockets' folder stays behind")
	}
}

func TestBadCountsAreRefused(t *testing.T) {
	for _, n := range []int{0, -1, MaxEngines + 1} {
		c := config(t)
		c.Decode = n
		if err := c.check(); err == nil {
			t.Error(n)
		}
	}
}

func TestASecondRunOnTheSameDataIsRefused(t *testing.T) {
	dir := t.TempDir()
	first, err := lockData(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockData(dir); !errors.Is(err, ErrInUse) {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := lockData(dir)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestTheReadyLineIsOneObject(t *testing.T) {
	var out bytes.Buffer
	tell := newTeller(true, &out)
	tell.change(Change{Event: "started", Name: "p1"}) // expected, so not told
	if err := tell.ready(Ready{Ready: true, HTTP: "http://127.0.0.1:1/v1", Children: []Child{{Name: "p1", PID: 7}}}); err != nil {
		t.Fatal(err)
	}
	tell.change(Change{Event: "restarted", Name: "p1", PID: 8})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var r Ready
	var c Change
	if len(lines) != 2 || json.Unmarshal([]byte(lines[0]), &r) != nil || json.Unmarshal([]byte(lines[1]), &c) != nil || r.Children[0].PID != 7 || c.PID != 8 {
		t.Fatal(lines)
	}
	out.Reset()
	tell.json = false
	if err := tell.ready(Ready{HTTP: "http://127.0.0.1:1/v1", curl: (&plan{http: "127.0.0.1:1"}).curl("tiny", "Hello.")}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "curl -N http://127.0.0.1:1/v1/completions") {
		t.Fatal(out.String())
	}
}

func TestABinaryIsBuiltOnceForItsSources(t *testing.T) {
	root, cache := t.TempDir(), t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module "+modulePath+"\n\ngo 1.26\n")
	write("tool/main.go", "package main\n\nfunc main() {}\n")
	b := binary{name: "tool", dir: ".", target: "./tool", sources: []string{"tool", "go.mod"}, env: []string{"CGO_ENABLED=0", "GOFLAGS="}}
	var progress bytes.Buffer
	where := places{beside: t.TempDir(), source: sourceRoot(filepath.Join(root, "tool")), cache: cache, out: &progress}
	first := where.findAtOnce(t, b, 3)
	if !executable(first) || strings.Count(progress.String(), "built tool") != 1 {
		t.Fatal(progress.String())
	}
	progress.Reset()
	write("tool/main_test.go", "package main\n")
	if again, err := where.find(t.Context(), b); err != nil || again != first || progress.Len() != 0 {
		t.Fatal(again, err, progress.String())
	}
	write("tool/main.go", "package main\n\nfunc main() { nonsense }\n")
	if _, err := where.find(t.Context(), b); err == nil || !strings.Contains(err.Error(), "undefined: nonsense") {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(cache, "*building*")); err != nil || len(left) != 0 {
		t.Fatal(left, err)
	}
}

// findAtOnce has several runs look for b in the same moment; only the one that
// builds it tells anything.
func (p places) findAtOnce(t *testing.T, b binary, runs int) (path string) {
	t.Helper()
	type found struct {
		path string
		err  error
	}
	all := make(chan found, runs)
	for range runs {
		go func() {
			path, err := p.find(t.Context(), b)
			all <- found{path, err}
		}()
	}
	for range runs {
		f := <-all
		if f.err != nil || path != "" && f.path != path {
			t.Fatal(path, f)
		}
		path = f.path
	}
	return path
}

func TestWithoutSourcesAMissingBinaryIsExplained(t *testing.T) {
	where := places{beside: t.TempDir(), source: sourceRoot(t.TempDir()), cache: t.TempDir()}
	if _, err := where.find(t.Context(), binary{name: "no-such-surehand-binary"}); err == nil || !strings.Contains(err.Error(), "in a checkout of Surehand") {
		t.Fatal(err)
	}
}
