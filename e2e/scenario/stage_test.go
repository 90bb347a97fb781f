package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

// Sizes that the scenarios count on: a long prompt takes P 300 ms, so that
// every phase can be hit; it is moved while it is computed.
const (
	prefillRate = 2000 // prompt tokens a second
	chunk       = 64
	step        = 10 * time.Millisecond // between two tokens
	longPrompt  = 598                   // bytes: 600 tokens
	shortPrompt = 98                    // 100 tokens: moved once it is sealed
	answerLong  = 60                    // tokens: 600 ms of decode
	lease       = 2 * time.Second
)

// Bounds.
const (
	requestWithin = 30 * time.Second
	restWithin    = 30 * time.Second // after any fault: leases, timeouts of tasks, undo
	promptly      = time.Second      // L2: the client left
	goodAgain     = 10 * time.Second // L3: after the fault is healed
)

// stage is a fleet with its clients.
type stage struct {
	*fleet.Fleet
	clients map[string]*traffic.Client
	closed  bool
}

var (
	programs    = sync.OnceValues(func() (fleet.Programs, error) { return fleet.Build(context.Background(), patient) })
	sharedStage *stage
)

func TestMain(m *testing.M) {
	before := goleak.IgnoreCurrent()
	code := m.Run()
	if sharedStage != nil {
		if err := sharedStage.close(); err != nil {
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

func sharedOptions() fleet.Options {
	return fleet.Options{PrefillRate: prefillRate, Step: step, Chunk: chunk, Lease: lease}
}

// open starts a fleet of one's own, and stops it with the test.
func open(t *testing.T, o fleet.Options) *stage {
	t.Helper()
	s := launch(t, o)
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func launch(t *testing.T, o fleet.Options) *stage {
	t.Helper()
	if testing.Short() {
		t.Skip("real processes are not for -short")
	}
	p, err := programs()
	if errors.Is(err, fleet.ErrNoTemporal) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "surehand-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	f, err := fleet.Start(t.Context(), p, dir, o)
	s := &stage{Fleet: f, clients: map[string]*traffic.Client{}}
	for name, address := range f.HTTP {
		s.clients[name] = traffic.NewClient(address)
	}
	if err == nil {
		err = s.serves(t.Context())
	}
	if err != nil {
		t.Fatal(errors.Join(err, s.close()))
	}
	return s
}

// serves waits until every pair of P and D is served through each gateway.
func (s *stage) serves(ctx context.Context) error {
	var failed []error
	for _, c := range s.clients {
		failed = append(failed, fault.Serves(ctx, s.Fleet, c))
	}
	return errors.Join(failed...)
}

// shared gives the fleet that scenarios share, healed and at rest, and checks
// at the test's end that it is at rest again.
func shared(t *testing.T) *stage {
	t.Helper()
	if sharedStage == nil {
		sharedStage = launch(t, sharedOptions())
	}
	s := sharedStage
	err := s.serves(t.Context())
	if err == nil {
		err = s.AtRest(t.Context(), restWithin)
	}
	if err != nil {
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
		t.Log(s.logs())
		sharedStage = nil
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// logs are the last complaints of every process.
func (s *stage) logs() string {
	var out strings.Builder
	for _, p := range s.Processes() {
		lines := slices.DeleteFunc(strings.Split(p.Tail(), "\n"), func(line string) bool {
			return !strings.Contains(line, "WARN") && !strings.Contains(line, "ERROR") && !strings.Contains(line, "panic")
		})
		for _, line := range lines[max(0, len(lines)-4):] {
			fmt.Fprintf(&out, "%s: %.400s\n", p.Name(), line)
		}
	}
	return out.String()
}

func (s *stage) close() error {
	for _, c := range s.clients {
		c.Close()
	}
	return errors.Join(s.Stop(), os.RemoveAll(s.Dir))
}

// ask is a request from p1 to d1, for a test that strikes them by name.
func (s *stage) ask(prompt, tokens int) traffic.Ask {
	return traffic.Ask{Model: s.Options.ModelName(), Prompt: traffic.Words(prompt), MaxTokens: tokens, Seed: 7,
		Prefill: "p1", Decode: "d1", Deadline: 20 * time.Second}
}

// g1 and g2 are the two gateways' clients.
func (s *stage) g1() *traffic.Client { return s.clients["g1"] }
func (s *stage) g2() *traffic.Client { return s.clients["g2"] }

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
}

// fine fails the test unless a fresh request is soon answered whole (L3).
func (s *stage) fine(t *testing.T, c *traffic.Client) {
	t.Helper()
	a := s.ask(shortPrompt, 5)
	a.Prefill, a.Decode = "", ""
	ctx, cancel := context.WithTimeout(t.Context(), goodAgain)
	defer cancel()
	for {
		answer := c.Send(ctx, a)
		err := answer.Counted(5)
		if err == nil {
			return
		}
		if typed := answer.Typed(); typed != nil && ctx.Err() == nil {
			t.Errorf("a fresh request: %s", typed)
		}
		select {
		case <-ctx.Done():
			t.Errorf("no fresh request is answered within %s: %s", goodAgain, err)
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// oneOwner fails the test if two attempts of one handoff were visible, unless
// the earlier one's reader gave it up: then its own engine's stream had no token.
func oneOwner(t *testing.T, events []fleet.Event) {
	t.Helper()
	owner := map[string]handoff.Attempt{}
	for _, a := range fault.Committed(events) {
		id := fault.PublicID(a)
		if other, ok := owner[id]; ok && other.Epoch >= a.Epoch {
			t.Errorf("%s became visible after %s", a, other)
		}
		owner[id] = a
	}
}
