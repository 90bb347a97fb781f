package browser

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"go.uber.org/goleak"

	"github.com/surehand/surehand/e2e/fleet/fleettest"
	"github.com/surehand/surehand/workers/dev"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 60 * time.Second

// site is a `surehand dev`.
type site struct{ dev.Ready }

const (
	operatorKey = "operator-key-of-this-test"
	tenantKey   = "tenant-key-of-this-test"
	secretEpoch = `"committed"` // of every outcome; in clear only for who may
)

// open runs everything on this machine, payloads sealed, with operators and tenants.
func open(t *testing.T) site {
	t.Helper()
	p := fleettest.Built(t, false)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	keys := file("keys", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n")
	who := file("access.yaml", "anonymous: dev\ntenants:\n  dev: {}\n  acme: {keys: [\""+digest(tenantKey)+"\"]}\noperators:\n  alice: {keys: [\""+digest(operatorKey)+"\"]}\n")
	config := file("config.yaml", "serve:\n  access: "+who+"\n")
	return site{fleettest.Dev(t, p, "--compute", "synthetic", "--prefill-tok-s", "2000", "--step-ms", "20", "--blocks", "256", "--payload-keys", keys, "--config", config)}
}

// chromium is a browser of its own, without a past.
func chromium(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("needs chromium on PATH (Debian's package)")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // it refuses to be root's otherwise
	}
	all, end := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...) // it ends in the cleanup
	ctx, leave := chromedp.NewContext(all)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Error(err)
		}
		leave()
		end()
	})
	return ctx
}

// Sizes of screens.
var (
	phone   = [2]int64{390, 844}
	desktop = [2]int64{1280, 900}
	screens = map[string][2]int64{"phone": phone, "desktop": desktop}
)

func size(s [2]int64) chromedp.Action[chromedp.Void] { return chromedp.EmulateViewport(s[0], s[1]) }

// text waits until the page says every word, and gives what it says.
func text(t *testing.T, ctx context.Context, words ...string) string {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		said, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body?.innerText ?? ""`))
		if err != nil {
			t.Fatal(err)
		}
		missing := ""
		for _, w := range words {
			if !strings.Contains(said, w) {
				missing = w
			}
		}
		if missing == "" {
			return said
		}
		if time.Now().After(end) {
			shot(t, ctx, "missing")
			t.Fatalf("the page never says %q, but:\n%s", missing, said)
		}
	}
}

// shot keeps what is on the screen, where somebody wants to look at it.
func shot(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	folder := os.Getenv("SUREHAND_SCREENSHOTS")
	if folder == "" {
		return
	}
	picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o600); err != nil {
		t.Fatal(err)
	}
}
