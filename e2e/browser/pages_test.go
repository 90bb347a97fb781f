package browser

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/surehand/surehand/e2e/traffic"
)

func digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (s site) ask(t *testing.T, ctx context.Context, tokens int) traffic.Answer {
	c := traffic.NewClient(strings.TrimPrefix(s.HTTP, "http://"))
	defer c.Close()
	return c.Send(ctx, traffic.Ask{Model: "surehand-synthetic", Prompt: traffic.Words(598), MaxTokens: tokens, APIKey: tenantKey})
}

// Temporal's page shows what a history holds to a browser that has an
// operator's key, and to no other.
func TestTemporalShowsSealedPayloadsToOperatorsOnly(t *testing.T) {
	s := open(t)
	a := s.ask(t, t.Context(), 5)
	if err := a.Whole(); err != nil {
		t.Fatal(err)
	}
	ctx := chromium(t)
	history := s.UI + "/namespaces/default/workflows/" + url.PathEscape("acme/"+a.Handoff)
	if err := chromedp.Do(ctx, size(desktop), chromedp.Navigate(history)); err != nil {
		t.Fatal(err)
	}
	said := text(t, ctx, "Result", "Codec Server could not connect")
	shot(t, ctx, "temporal-sealed")
	if strings.Contains(said, secretEpoch) {
		t.Errorf("an outcome is read without a key:\n%s", said)
	}
	enter := func(key string) {
		if err := chromedp.Do(ctx, chromedp.Navigate(s.HTTP+"/codec/"), chromedp.SendKeys("#key", key+"\r")); err != nil {
			t.Fatal(err)
		}
	}
	enter(tenantKey)
	text(t, ctx, "this is not for a tenant")
	enter(operatorKey)
	text(t, ctx, "Workflows") // the way leads back to Temporal's page
	if err := chromedp.Do(ctx, chromedp.Navigate(history)); err != nil {
		t.Fatal(err)
	}
	text(t, ctx, "Result", secretEpoch)
	shot(t, ctx, "temporal-opened")
	pages(t, s, ctx)
}

// pages looks at the gateway's own page while requests wait.
func pages(t *testing.T, s site, ctx context.Context) {
	if err := chromedp.Do(ctx, chromedp.Navigate(s.HTTP+"/ui/"), chromedp.WaitVisible("#key"), chromedp.SendKeys("#key", operatorKey),
		chromedp.SendKeys("#tenant", "acme\r")); err != nil {
		t.Fatal(err)
	}
	busy, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for range 12 {
		all.Go(func() {
			for busy.Err() == nil {
				s.ask(t, busy, 60)
			}
		})
	}
	text(t, ctx, "Queues", "admission", "starting", "p1", "d2", "running", "blocks free")
	for name, screen := range screens {
		if err := chromedp.Do(ctx, size(screen)); err != nil {
			t.Fatal(err)
		}
		if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`(document.getElementById("queue-title").scrollIntoView(), true)`)); err != nil {
			t.Fatal(err)
		}
		fits(t, ctx, name)
		text(t, ctx, "1 running")
		shot(t, ctx, "ui-queues-"+name)
	}
	for name, screen := range screens {
		if err := chromedp.Do(ctx, size(screen), chromedp.ScrollIntoView("header")); err != nil {
			t.Fatal(err)
		}
		shot(t, ctx, "ui-fleet-"+name)
	}
	stop()
	all.Wait()
	onePage(t, s, ctx)
}

// onePage looks at one handoff's waterfall, and follows its link to Temporal's page.
func onePage(t *testing.T, s site, ctx context.Context) {
	a := s.ask(t, t.Context(), 20)
	for end := time.Now().Add(patience); a.Failure != nil && a.Failure.Code == "capacity" && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		a = s.ask(t, t.Context(), 20) // those who left are being undone
	}
	if err := a.Whole(); err != nil {
		t.Fatal(err)
	}
	text(t, ctx, a.Handoff)
	press(t, ctx, "#list button", a.Handoff)
	for name, screen := range screens {
		if err := chromedp.Do(ctx, size(screen), chromedp.ScrollIntoView("header")); err != nil {
			t.Fatal(err)
		}
		text(t, ctx, a.Handoff, "completed", "reserve", "prefill", "transfer", "commit", "decode", "its workflow in Temporal")
		fits(t, ctx, name)
		shot(t, ctx, "ui-handoff-"+name)
	}
	press(t, ctx, "#facts a", "its workflow in Temporal")
	text(t, ctx, "acme/"+a.Handoff, "Workflow Type")
}

// press clicks what says a word, found and clicked at once: the page draws itself
// anew every other second.
func press(t *testing.T, ctx context.Context, what, word string) {
	t.Helper()
	script := fmt.Sprintf(`(() => { const e = [...document.querySelectorAll(%q)].find((e) => e.innerText.includes(%q)); e?.click(); return !!e })()`, what, word)
	if found, err := chromedp.Run(ctx, chromedp.Evaluate[bool](script)); err != nil || !found {
		t.Fatalf("%s with %q: %t %v", what, word, found, err)
	}
}

func fits(t *testing.T, ctx context.Context, screen string) {
	t.Helper()
	wide, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`document.documentElement.scrollWidth > innerWidth`))
	if err != nil {
		t.Fatal(err)
	}
	if wide {
		t.Errorf("on a %s the page is wider than the screen", screen)
	}
}
