package observe

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/fleet/fleettest"
	"github.com/surehand/surehand/e2e/traffic"
)

const (
	marker = "Netherfield-Park-is-let-at-last " // in every prompt, over and over
	reply  = "w41 w42"                          // within each long answer of the synthetic engine
)

// What is asked and answered is nowhere but where it is computed: not in a log of
// any process at its most talkative, a metric, a span, a history (in clear here, as
// Temporal keeps it on disk) or anything that was ever written to Redis. Requests
// are whole, malformed, refused, too long, late and left; P, D and a gateway die in
// the middle, and others go on with what was asked and with what was delivered.
func TestNothingTellsWhatWasAskedOrAnswered(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("real processes are not for -short")
	}
	p := fleettest.Built(t, false)
	c := collect(t)
	o := chaos.Options()
	o.Env = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + c.address, "OTEL_TRACES_SAMPLER_ARG=1",
		"SUREHAND_LOG_LEVEL=debug", "SUREHAND_TRANSFERD_LOG_LEVEL=debug", "SUREHAND_TRANSFERD_AUDIT=true"}
	o.GatewayArgs = append(o.GatewayArgs, "--body-keys", sealing(t))
	s, err := chaos.Open(t.Context(), p, o)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RealRedis(); err != nil {
		t.Skip(err)
	}
	if err := s.Configure(t.Context(), "appendonly", "yes"); err != nil { // whatever is written from now on stays in a file
		t.Fatal(err)
	}
	id := said{s}.tellAll(t)
	if err := s.AtRest(t.Context(), chaos.RestWithin); err != nil {
		t.Error(err)
	}
	said{s}.search(t, c, id)
}

// said is a fleet that was asked much.
type said struct{ *chaos.Stage }

func sealing(t *testing.T) string {
	t.Helper()
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "body.keys")
	if err := os.WriteFile(path, []byte(base64.StdEncoding.EncodeToString(key)+"\n"), 0o400); err != nil {
		t.Fatal(err)
	}
	return path
}

// tellAll asks in every way, and gives the id of one handoff.
func (s said) tellAll(t *testing.T) (id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	g1, g2 := s.Clients["g1"], s.Clients["g2"]
	ask := func(bytes, tokens int) traffic.Ask {
		a := s.Ask(bytes, tokens)
		a.Prompt = strings.Repeat(marker, bytes/len(marker)+1)[:bytes]
		a.Prefill, a.Decode = "", ""
		return a
	}
	whole := func(what string, a traffic.Answer) {
		if err := a.Whole(); err != nil {
			t.Errorf("%s: %s", what, err)
		}
	}
	one := ask(chaos.ShortPrompt, chaos.AnswerLong)
	one.Key, one.Journal = "Netherfield-key", true
	first := g1.Send(ctx, one)
	whole("a stream", first)
	whole("by its key, elsewhere", g2.Send(ctx, one))
	chat := ask(chaos.LongPrompt, 5)
	chat.Chat, chat.Whole = true, true
	whole("a chat", g2.Send(ctx, chat))
	r := g1.Background(ctx, s.Options.ModelName(), one.Prompt, chaos.AnswerLong)
	for r.Failed == "" && (r.Status == "queued" || r.Status == "in_progress") && ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
		r = g2.Response(ctx, r.ID)
	}
	if !strings.Contains(r.Text, reply) {
		t.Errorf("in the background: %+v", r)
	}

	for what, text := range map[string]string{
		"no JSON":                  `{"prompt": "` + marker,
		"another type":             `{"model": "m", "prompt": {"` + marker + `": "` + marker + `"}}`,
		"an unknown field":         `{"model": "` + s.Options.ModelName() + `", "prompt": "p", "max_tokens": 1, "` + marker + `": "` + marker + `"}`,
		"a number that is none":    `{"model": "` + s.Options.ModelName() + `", "prompt": "` + marker + `", "max_tokens": "` + marker + `"}`,
		"a stop that is too long":  `{"model": "` + s.Options.ModelName() + `", "prompt": "` + marker + `", "max_tokens": 1, "stop": "` + strings.Repeat(marker, 200) + `"}`,
		"a prompt beyond all else": `{"model": "` + s.Options.ModelName() + `", "prompt": "` + strings.Repeat(marker, 2<<20/len(marker)) + `", "max_tokens": 1}`,
	} {
		if a := g1.Stream(ctx, "/v1/completions", []byte(text), nil, nil); a.Failure == nil {
			t.Errorf("%s: %s", what, chaos.Verdict(a))
		}
	}
	other := one
	other.Prompt += marker
	if a := g2.Send(ctx, other); a.Failure == nil || a.Failure.Code != "key_reused" {
		t.Errorf("another body under the key: %s", chaos.Verdict(a))
	}
	late := ask(chaos.LongPrompt, 5)
	late.Deadline = 50 * time.Millisecond
	if a := g1.Send(ctx, late); a.Failure == nil {
		t.Errorf("late: %s", chaos.Verdict(a))
	}
	left, leave := context.WithCancel(ctx)
	gone := ask(chaos.LongPrompt, chaos.AnswerLong)
	gone.OnPiece = func(int) { leave() }
	g2.Send(left, gone)
	leave()

	long := ask(chaos.LongPrompt, chaos.AnswerLong)
	long.Prefill, long.Decode = "p1", "d1"
	struck, err := fault.Strike(ctx, s.Fleet, g1, long, fault.Prefill, func(fleet.Event) error { return s.Process("p1").Kill() })
	if err != nil {
		t.Error(err)
	}
	whole("P died", struck.Answer)
	s.heal(t, ctx)
	long.Resume = true
	long.OnPiece = func(n int) {
		if n == 45 { // reply is among what is to be prefilled again
			if err := s.Process("d1").Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	resumed := g1.Send(ctx, long)
	whole("D died", resumed)
	if len(resumed.Resumed) != 1 {
		t.Errorf("D died: %+v", resumed.Resumed)
	}
	s.heal(t, ctx)
	long.Resume, long.Journal = false, true
	long.OnPiece = func(n int) {
		if n == 45 {
			if err := s.Process("g1").Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	cut := g1.Send(ctx, long)
	whole("the gateway died", g2.Attach(ctx, cut.Handoff, cut.LastID))
	s.heal(t, ctx)
	return first.Handoff
}

func (s said) heal(t *testing.T, ctx context.Context) {
	t.Helper()
	if err := s.Heal(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Serves(ctx); err != nil {
		t.Fatal(err)
	}
}

// forms of a text in which it may be written down.
func forms(text string) (out [][]byte) {
	out = append(out, []byte(text), []byte(hex.EncodeToString([]byte(text))))
	for i := range 3 { // as a part of something longer, less what its neighbours decide
		b := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", i) + text))
		out = append(out, []byte(b[4:len(b)-4]))
	}
	numbers := make([]string, 0, len(text))
	for _, b := range []byte(text) {
		numbers = append(numbers, fmt.Sprint(b))
	}
	return append(out, []byte(strings.Join(numbers, ",")), []byte(strings.Join(numbers, " ")), []byte(strings.Join(numbers, ", ")))
}

// search looks for marker and reply in all that is kept. The handoff's id is what
// must be found there, so that it was looked in the right place.
func (s said) search(t *testing.T, c *collector, id string) {
	t.Helper()
	told := map[string]bool{}
	look := func(where, kind string, text []byte) {
		told[kind] = told[kind] || bytes.Contains(text, []byte(id))
		for _, secret := range []string{marker[:len(marker)-1], reply} {
			for _, form := range forms(secret) {
				if at := bytes.Index(text, form); at >= 0 {
					t.Errorf("%s tells %q: …%q…", where, secret, text[max(0, at-100):min(len(text), at+len(form)+40)])
					break
				}
			}
		}
	}
	err := filepath.WalkDir(s.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		within, _ := filepath.Rel(s.Dir, path)
		kind, _, _ := strings.Cut(within, string(filepath.Separator))
		look(within, kind, text)
		if strings.HasSuffix(within, ".log") && within != fleet.Redis+".log" && within != fleet.Temporal+".log" { // each of ours
			isJSON(t, within, text)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	for _, kind := range []string{"gateway", "engine", "transferd"} {
		for _, address := range s.Scrapes(kind) {
			code, text, err := traffic.Raw(t.Context(), "GET", "http://"+address+"/metrics", "")
			if err != nil || code != 200 || !strings.Contains(text, "surehand_") {
				t.Errorf("metrics of a %s: %d %v", kind, code, err)
			}
			look("metrics of a "+kind, "metrics", []byte(text))
		}
	}
	c.mu.Lock()
	look("a span", "spans", []byte(strings.Join(c.words, "\n")))
	c.mu.Unlock()
	for _, kind := range []string{"appendonlydir", fleet.Temporal, "g1.log", "spans"} {
		if !told[kind] {
			t.Errorf("%s does not tell of %s: it was not looked in the right place", kind, id)
		}
	}
	if told["metrics"] {
		t.Error("a metric names a handoff")
	}
}

// isJSON says that each line of a log is slog's.
func isJSON(t *testing.T, name string, text []byte) {
	t.Helper()
	for line := range bytes.Lines(text) {
		var entry struct {
			Time       time.Time
			Level, Msg string
		}
		if err := json.Unmarshal(line, &entry); err != nil || entry.Time.IsZero() || entry.Level == "" {
			t.Errorf("%s has a line that is no JSON of slog's: %.200s", name, line)
			return
		}
	}
}
