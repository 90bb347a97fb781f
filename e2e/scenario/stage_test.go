package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/fleet/fleettest"
	"github.com/surehand/surehand/e2e/traffic"
)

// Sizes and bounds are those of the cells of chaos.
const (
	prefillRate = chaos.PrefillRate
	chunk       = chaos.Chunk
	step        = chaos.Step
	longPrompt  = chaos.LongPrompt
	shortPrompt = chaos.ShortPrompt
	answerLong  = chaos.AnswerLong
	lease       = chaos.Lease

	requestWithin = chaos.RequestWithin
	restWithin    = chaos.RestWithin
)

// stage is a fleet with its clients.
type stage struct{ *chaos.Stage }

var (
	programs    = sync.OnceValues(func() (fleet.Programs, error) { return fleet.Build(context.Background(), patient) })
	sharedStage *stage
)

func TestMain(m *testing.M) {
	before := goleak.IgnoreCurrent()
	code := m.Run()
	if sharedStage != nil {
		fmt.Println("sometimes, on the shared fleet:")
		for _, r := range chaos.Sometimes(sharedStage.Since(0)) {
			fmt.Println(r)
		}
		if err := sharedStage.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "the fleet did not stop in order:", err)
			code = max(code, 1)
		}
	}
	if err := goleak.Find(before); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// open starts a fleet of one's own, and stops it with the test.
func open(t *testing.T, o fleet.Options) *stage {
	t.Helper()
	s := launch(t, o)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func launch(t *testing.T, o fleet.Options) *stage {
	t.Helper()
	p := fleettest.Programs(t, programs)
	s, err := chaos.Open(t.Context(), p, o)
	if err != nil {
		t.Fatal(errors.Join(err, s.Close()))
	}
	return &stage{s}
}

// shared gives the fleet that scenarios share, healed and at rest, and checks
// at the test's end that it is at rest again.
func shared(t *testing.T) *stage {
	t.Helper()
	if sharedStage == nil {
		o := chaos.Options()
		o.GatewayArgs = append(o.GatewayArgs, "--leaks-every", "1s")
		sharedStage = launch(t, o)
	}
	s := sharedStage
	if err := s.Ready(t.Context()); err != nil {
		t.Fatal("before the test: ", err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		err := s.Heal(ctx)
		if err == nil {
			err = s.AtRest(ctx, restWithin)
		}
		if err != nil {
			t.Error(err)
		}
		if !t.Failed() {
			return
		}
		t.Log(s.Logs())
		sharedStage = nil
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// ask is a request from p1 to d1, for a test that strikes them by name.
func (s *stage) ask(prompt, tokens int) traffic.Ask { return s.Ask(prompt, tokens) }

// g1 and g2 are the two gateways' clients.
func (s *stage) g1() *traffic.Client { return s.Clients["g1"] }
func (s *stage) g2() *traffic.Client { return s.Clients["g2"] }

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// atRest fails the test while anything is held.
func (s *stage) atRest(t *testing.T) {
	t.Helper()
	if err := s.AtRest(t.Context(), restWithin); err != nil {
		t.Error(err)
	}
	if err := fleet.Paths(s.Since(0)); err != nil {
		t.Errorf("a daemon's trace is no path of the table: %s", err)
	}
}

// fine fails the test unless a fresh request is soon answered whole (L3).
func (s *stage) fine(t *testing.T, c *traffic.Client) {
	t.Helper()
	if err := s.Fine(t.Context(), c); err != nil {
		t.Error(err)
	}
}

// required fails the test unless an answer is what is asked for.
func required(t *testing.T, want chaos.Outcome, a traffic.Answer, tokens int) {
	t.Helper()
	if err := chaos.Required(want, a, tokens); err != nil {
		t.Errorf("a client saw: %s", err)
	}
}

// oneOwner fails the test if two attempts of one handoff were visible.
func oneOwner(t *testing.T, events []fleet.Event) {
	t.Helper()
	if err := chaos.OneOwner(events); err != nil {
		t.Error(err)
	}
}

// console is a terminal: the command line, at one gateway.
type console struct {
	s       *stage
	gateway string
}

// try runs surehand with these arguments and gives what it prints.
func (c console) try(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.s.Process(c.gateway).Path(), append(args, "--server", c.s.GRPC[c.gateway])...)
	var out, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failed
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, failed.String())
	}
	return out.String(), nil
}

func (c console) run(t *testing.T, ctx context.Context, args ...string) string {
	t.Helper()
	out, err := c.try(ctx, args...)
	if err != nil {
		t.Errorf("surehand %v: %s", args, err)
	}
	return out
}
