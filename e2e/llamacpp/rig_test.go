package llamacpp

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
	"github.com/surehand/surehand/workers/dev"
	"github.com/surehand/surehand/workers/llamacpp/install"
	"github.com/surehand/surehand/workers/llamacpp/libllama"
)

const (
	answerWithin = 2 * time.Minute // of one request: the machine may be busy
	restWithin   = time.Minute
	lease        = 4 * time.Second
	sequences    = 8    // of each engine
	context1     = 1024 // tokens of prompt and answer
	chunk        = 16   // tokens between two looks at who cancelled
	installMost  = 10 * time.Minute
)

// the fleet, and the library alone, which say together what is right.
var (
	stage *fleet.Fleet
	alone *library
	built fleet.Programs
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	if flag.Parse(); !asked || testing.Short() {
		fmt.Println("skipped: go test -tags e2e ./e2e/llamacpp")
		return 0
	}
	dir, err := os.MkdirTemp("", "llama-")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	err = open(context.Background(), dir)
	var missing *notInstalled
	if errors.As(err, &missing) {
		fmt.Println("skipped:", err)
		return 0
	}
	if err == nil {
		began := time.Now()
		code = m.Run()
		fmt.Printf("tests: %.0f s\n", time.Since(began).Seconds())
		tellCPU("all since its last start")
	} else {
		fmt.Println(err)
		code = 1
	}
	if stage != nil {
		if err := stage.Stop(); err != nil {
			fmt.Println("stop:", err)
			code = 1
		}
	}
	if code != 0 {
		fmt.Println("logs:", dir)
		return code
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// notInstalled says that what the engines run on cannot be fetched here.
type notInstalled struct{ error }

func open(ctx context.Context, dir string) error {
	began := time.Now()
	tell := func(what string) {
		fmt.Printf("%s: %.0f s\n", what, time.Since(began).Seconds())
		began = time.Now()
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	fetching, cancel := context.WithTimeout(ctx, installMost)
	defer cancel()
	at, err := install.Install(fetching, dev.LlamacppCache(filepath.Join(cache, "surehand", "bin")), install.Gemma, os.Stdout)
	if handoff.CodeOf(err) == handoff.CodeUnavailable {
		return &notInstalled{err}
	}
	if err != nil {
		return err
	}
	tell("libraries and weights installed")
	if built, err = fleet.Build(ctx, true); err != nil {
		return err
	}
	if built.Engine, err = fleet.Program(ctx, "surehand-llamacpp", "./workers/llamacpp/cmd/surehand-llamacpp"); err != nil {
		return err
	}
	tell("programs built")
	if alone, err = newLibrary(at); err != nil {
		return err
	}
	stage, err = fleet.Start(ctx, built, dir, fleet.Options{Gateways: 1, Lease: lease, Serves: at.Model,
		Engine: func(_ context.Context, s fleet.Seat) ([]string, error) {
			return []string{"engine", "--transferd-socket", s.Daemon, "--libraries", at.Libraries, "--weights", at.Weights, "--model", at.Model,
				"--chat-template", at.Template, "--context", fmt.Sprint(context1), "--slots", fmt.Sprint(sequences), "--chunk-tokens", fmt.Sprint(chunk)}, nil
		}})
	if err != nil {
		return err
	}
	err = fault.Serves(ctx, stage, traffic.NewClient(stage.HTTP["g1"]))
	tell("two P and two D serve")
	tellCPU("its start and first handoff")
	return err
}

// tellCPU says what each engine has cost.
func tellCPU(what string) {
	for _, name := range []string{"p1", "p2", "d1", "d2"} {
		if used, err := stage.Process(name).CPU(); err == nil {
			fmt.Printf("%s: %.1f s of CPU time for %s\n", name, used.Seconds(), what)
		}
	}
}

// library is llama.cpp without anything of ours.
type library struct {
	model *libllama.Model
	known map[string]expected
}

// expected is the answer to an ask.
type expected struct {
	text           string
	prompt, tokens int
}

func newLibrary(at install.Installed) (*library, error) {
	m, err := libllama.Load(at.Libraries, at.Weights)
	return &library{model: m, known: map[string]expected{}}, err
}

// answer decodes greedily, in one sequence that never leaves its context.
func (l *library) answer(t *testing.T, prompt string, most int) expected {
	t.Helper()
	key := fmt.Sprint(most, prompt)
	if got, ok := l.known[key]; ok {
		return got
	}
	c, err := l.model.NewContext(libllama.Options{Sequences: 1, Tokens: context1, Batch: chunk, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	next, err := l.model.Tokenize([]byte(prompt), context1)
	if err != nil {
		t.Fatal(err)
	}
	out, pos := expected{prompt: len(next)}, 0
	for out.tokens < most {
		var logits []float32
		for at := 0; at < len(next); at += chunk {
			piece := next[at:min(at+chunk, len(next))]
			if logits, err = c.Decode(0, pos, piece, at+chunk >= len(next)); err != nil {
				t.Fatal(err)
			}
			pos += len(piece)
		}
		token := 0
		for i, v := range logits {
			if v > logits[token] {
				token = i
			}
		}
		if l.model.IsEnd(token) {
			break
		}
		text, err := l.model.Piece(token)
		if err != nil {
			t.Fatal(err)
		}
		out.text += string(text)
		out.tokens++
		next = []int{token}
	}
	l.known[key] = out
	return out
}

const venice = "The city of Venice stands on more than a hundred small islands in a shallow lagoon. Its people go by boat or on foot, for there are no roads. "

// text of so many bytes, another for each number.
func text(number, bytes int) string {
	return fmt.Sprintf("Letter %d. ", number) + strings.Repeat(venice, 1+bytes/len(venice))[:bytes]
}

func ask(prompt string, tokens int) traffic.Ask {
	return traffic.Ask{Model: stage.Options.ModelName(), Prompt: prompt, MaxTokens: tokens, Prefill: "p1", Decode: "d1", Deadline: time.Minute}
}

func client(t *testing.T) *traffic.Client {
	c := traffic.NewClient(stage.HTTP["g1"])
	t.Cleanup(c.Close)
	return c
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// right is nil when an answer is whole and just what the library says, all of
// its prompt's state having come by the handoff.
func right(t *testing.T, a traffic.Ask, got traffic.Answer) error {
	t.Helper()
	if err := got.Whole(); err != nil {
		return err
	}
	want := alone.answer(t, a.Prompt, a.MaxTokens)
	switch {
	case got.Text != want.text || got.Usage.Completion != want.tokens:
		return fmt.Errorf("%d tokens %q\nwant %d %q", got.Usage.Completion, got.Text, want.tokens, want.text)
	case got.Usage.Prompt != want.prompt || got.Usage.Direct != want.prompt || got.Usage.Recomputed+got.Usage.Cached > 0:
		return fmt.Errorf("usage %+v, want %d prompt tokens, all direct", got.Usage, want.prompt)
	}
	return nil
}

// honest is nil when an answer is right, or ends in a typed refusal after a
// beginning of what is right.
func honest(t *testing.T, a traffic.Ask, got traffic.Answer) error {
	t.Helper()
	if got.Failure == nil {
		return right(t, a, got)
	}
	if err := got.Typed(); err != nil {
		return err
	}
	if want := alone.answer(t, a.Prompt, a.MaxTokens).text; !strings.HasPrefix(want, got.Text) {
		return fmt.Errorf("before the refusal came %q\nwant a beginning of %q", got.Text, want)
	}
	return nil
}

// atRest heals and waits until nothing is held by anybody.
func atRest(t *testing.T) {
	t.Helper()
	ctx := within(t, 2*restWithin)
	if err := errors.Join(stage.Heal(ctx), stage.AtRest(ctx, restWithin)); err != nil {
		t.Error(err)
	}
}

func oneOwner(t *testing.T, m fleet.Mark) {
	t.Helper()
	if err := chaos.OneOwner(stage.Since(m)); err != nil {
		t.Error(err)
	}
}
