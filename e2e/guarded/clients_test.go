package guarded

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// openaiVersion is installed by `task clients`, into the cache.
const openaiVersion = "3.51.0"

// python is the interpreter that has the openai package, or the test is skipped.
func python(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(cache, "surehand", "clients", "bin", "python")
	out, err := exec.CommandContext(t.Context(), path, "-c", "import openai; print(openai.__version__)").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != openaiVersion {
		t.Skipf("Python's openai %s is not installed: `task clients` does: %v %s", openaiVersion, err, out)
	}
	return path
}

// Every test of testdata/client.py, which is Python's openai package against two
// gateways, passes, and each of them ran.
func TestPythonsOpenAIClientSeesWhatItsUsersExpect(t *testing.T) {
	interpreter := python(t)
	g := shared(t)
	limited := g.limited(t, "requests_per_second: 0.05, burst: 2, max_prompt_bytes: 100")
	text, err := os.ReadFile("testdata/client.py")
	if err != nil {
		t.Fatal(err)
	}
	want := len(regexp.MustCompile(`(?m)^    def test_`).FindAll(text, -1))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, interpreter, "testdata/client.py")
	c.Env = append(os.Environ(), "URL=http://"+g.HTTP["g1"]+"/v1", "OTHER_URL=http://"+g.HTTP["g2"]+"/v1", "MODEL="+g.Options.ModelName(),
		"KEY_ACME="+g.keys[acme], "KEY_OTHER="+g.keys[other], "KEY_LIMITED="+g.keys[limited])
	out, err := c.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
	if ran := strings.Count(string(out), "... ok"); ran != want {
		t.Errorf("%d of %d tests passed", ran, want)
	}
}

// grpcurl finds the services by reflection, and does with them what an engineer
// would on a terminal.
func TestGrpcurlSubmitsGetsListsAndCancels(t *testing.T) {
	g := shared(t)
	tool, err := grpcurl(t.Context())
	if err != nil {
		t.Skipf("grpcurl cannot be built here: %v", err)
	}
	call := func(who string, args ...string) (string, error) {
		c := exec.CommandContext(t.Context(), tool, append([]string{"-plaintext", "-H", "authorization: Bearer " + g.keys[who]}, args...)...)
		out, err := c.CombinedOutput()
		return string(out), err
	}
	at := g.GRPC["g1"]
	if out, err := call(acme, at, "list"); err != nil || !strings.Contains(out, "surehand.submit.v1.Submit") || !strings.Contains(out, "grpc.health.v1.Health") {
		t.Errorf("reflection: %v %s", err, out)
	}
	if out, err := call(acme, at, "describe", "surehand.submit.v1.SubmitRequest"); err != nil || !strings.Contains(out, "idempotency_key") {
		t.Errorf("describe: %v %s", err, out)
	}
	if out, err := call("nobody", at, "grpc.health.v1.Health/Check"); err == nil { // the schema is behind the key, health is not
		t.Errorf("reflection without a key: %s", out)
	}
	if out, err := call(acme, at, "grpc.health.v1.Health/Check"); err != nil || !strings.Contains(out, "SERVING") {
		t.Errorf("health: %v %s", err, out)
	}
	body := `{"model":"` + g.Options.ModelName() + `","prompt":"Hi","max_tokens":5,"idempotency_key":"by-hand"}`
	out, err := call(acme, "-d", body, at, "surehand.submit.v1.Submit/Submit")
	if err != nil {
		t.Fatalf("submit: %v %s", err, out)
	}
	id, text, finish := submitted(t, out)
	if strings.TrimSpace(text) != "w0 w1 w2 w3 w4" || finish != "length" {
		t.Errorf("the stream is %q %q", text, finish)
	}
	named := `{"handoff":"` + id + `"}`
	if out, err := call(acme, "-d", named, at, "surehand.submit.v1.Submit/Get"); err != nil || !strings.Contains(out, `"completed"`) && !strings.Contains(out, `"running"`) {
		t.Errorf("get: %v %s", err, out)
	}
	for deadline := time.Now().Add(10 * time.Second); ; { // a list is made a moment later
		out, err = call(acme, "-d", "{}", at, "surehand.submit.v1.Submit/List")
		if err == nil && strings.Contains(out, id) || time.Now().After(deadline) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil || !strings.Contains(out, id) {
		t.Errorf("list: %v %s", err, out)
	}
	for _, method := range []string{"Get", "Cancel", "Attach"} {
		if out, err := call(other, "-d", named, at, "surehand.submit.v1.Submit/"+method); err == nil || !strings.Contains(out, "NotFound") && !strings.Contains(strings.ToLower(out), "gone") {
			t.Errorf("%s of another tenant's handoff: %v %s", method, err, out)
		}
	}
	if out, err := call(acme, "-d", named, at, "surehand.submit.v1.Submit/Cancel"); err != nil {
		t.Errorf("cancel of what is over: %v %s", err, out)
	}
	if out, err := call(acme, "-d", "{}", at, "surehand.operate.v1.Operator/Engines"); err == nil || !strings.Contains(out, "PermissionDenied") {
		t.Errorf("a tenant operates: %v %s", err, out)
	}
	if out, err := call(operator, "-d", "{}", at, "surehand.operate.v1.Operator/Engines"); err != nil || !strings.Contains(out, "p1") {
		t.Errorf("an operator: %v %s", err, out)
	}
}

// grpcurl builds the tool from tools/go.mod, beside the programs of a fleet: what has
// not changed is not linked anew.
func grpcurl(ctx context.Context) (string, error) {
	path, err := filepath.Abs("../../.surehand/e2e/grpcurl")
	if err != nil {
		return "", err
	}
	c := exec.CommandContext(ctx, "go", "build", "-modfile=tools/go.mod", "-o", path, "github.com/fullstorydev/grpcurl/cmd/grpcurl")
	c.Dir = filepath.Join("..", "..")
	out, err := c.CombinedOutput()
	if err != nil {
		return string(out), err
	}
	return path, nil
}

// submitted reads grpcurl's JSON of a stream.
func submitted(t *testing.T, out string) (id, text, finish string) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(out))
	for d.More() {
		var e struct {
			Accepted struct{ Handoff string }
			Delta    struct{ Text string }
			Finished struct{ FinishReason string }
		}
		if err := d.Decode(&e); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		id, text, finish = id+e.Accepted.Handoff, text+e.Delta.Text, finish+e.Finished.FinishReason
	}
	return id, text, finish
}
