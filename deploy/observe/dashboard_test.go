package observe

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write surehand.json anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheDashboardIsWhatItsPanelsMake(t *testing.T) {
	d, err := Build()
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile("surehand.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(want, Dashboard) {
		t.Error("surehand.json is of other panels: go test ./deploy/observe -update")
	}
}

// Grafana's own types read the file, and nothing in it is unknown to them.
func TestTheDashboardIsGrafanas(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	var d dashboard.Dashboard
	if err := said(d.UnmarshalJSONStrict(Dashboard)); err != nil {
		t.Fatal(err)
	}
	if err := said(d.Validate()); err != nil {
		t.Error(err)
	}
	var broken dashboard.Dashboard
	if err := said(broken.UnmarshalJSONStrict(bytes.Replace(Dashboard, []byte(`"refresh"`), []byte(`"fresh"`), 1))); err == nil {
		t.Error("a field that Grafana does not know was accepted")
	}
}

// said drops the library's list of no errors, which it gives as an error.
func said(err error) error {
	if err == nil || err.Error() == "" {
		return nil
	}
	return err
}

// The rules are tested by Prometheus's own tool: each fires on what it is for,
// and not without.
func TestTheAlertsAreWhatPromtoolAccepts(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("needs promtool (Debian's prometheus)")
	}
	for _, args := range []string{"check rules alerts.yml", "test rules alerts_test.yml", "check config --syntax-only prometheus.yml"} {
		if out, err := exec.Command(tool, strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", args, err, out)
		}
	}
}

// Each alert says what to do, in the operations guide.
func TestEachAlertIsInTheGuide(t *testing.T) {
	rules, err := os.ReadFile("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, line := range strings.Split(string(rules), "\n") {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "- alert: ")
		if !ok {
			continue
		}
		found++
		if !strings.Contains(string(guide), "### "+name+"\n") {
			t.Errorf("docs/operations.md has no section on %s", name)
		}
	}
	if found < 8 {
		t.Errorf("found %d alerts", found)
	}
}
