package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

// Sizes that the cells count on: a long prompt takes P 300 ms, so that every
// phase can be hit; it is moved while it is computed.
const (
	PrefillRate = 2000 // prompt tokens a second
	Chunk       = 64
	Step        = 10 * time.Millisecond // between two tokens
	LongPrompt  = 598                   // bytes: 600 tokens
	ShortPrompt = 98                    // 100 tokens: moved once it is sealed
	AnswerLong  = 60                    // tokens: 600 ms of decode
	Lease       = 2 * time.Second       // scaled down, so that lapses are seen
)

// Bounds.
const (
	RequestWithin = 30 * time.Second
	RestWithin    = 30 * time.Second // after any fault: leases, timeouts of tasks, undo
	GoodAgain     = 10 * time.Second // L3: after the fault is healed

	// held is how long a fault lasts: longer than any lease.
	held = 2*Lease + time.Second
)

// Options of the fleet that cells run on.
func Options() fleet.Options {
	return fleet.Options{PrefillRate: PrefillRate, Step: Step, Chunk: Chunk, Lease: Lease}
}

// Stage is a fleet with its clients.
type Stage struct {
	*fleet.Fleet
	Clients map[string]*traffic.Client // by gateway
	Wall    *Wall                      // nil: the fleet shares the host's network namespace
}

// Open starts a fleet and waits until every pair is served. Close what it gives,
// also beside an error.
func Open(ctx context.Context, p fleet.Programs, o fleet.Options) (*Stage, error) {
	s, err := Start(ctx, p, o)
	if err != nil {
		return s, err
	}
	return s, s.Serves(ctx)
}

// Start begins a fleet in a folder of its own, with a client for each gateway; it
// need not be one that serves anybody. Close what it gives, also beside an error.
func Start(ctx context.Context, p fleet.Programs, o fleet.Options) (*Stage, error) {
	s := &Stage{Clients: map[string]*traffic.Client{}}
	dir, err := os.MkdirTemp("", "surehand-e2e-")
	if err != nil {
		return s, err
	}
	s.Fleet, err = fleet.Start(ctx, p, dir, o)
	for name, address := range s.HTTP {
		s.Clients[name] = traffic.NewClient(address)
	}
	return s, err
}

// Close stops everything and removes what it left.
func (s *Stage) Close() error {
	for _, c := range s.Clients {
		c.Close()
	}
	if s.Fleet == nil {
		return nil
	}
	return errors.Join(s.Stop(), os.RemoveAll(s.Dir))
}

// Serves waits until every pair of P and D is served through each gateway.
func (s *Stage) Serves(ctx context.Context) error {
	var failed []error
	for _, c := range s.Clients {
		failed = append(failed, fault.Serves(ctx, s.Fleet, c))
	}
	return errors.Join(failed...)
}

// Ready waits until the stage serves and nothing is held.
func (s *Stage) Ready(ctx context.Context) error {
	if err := s.Serves(ctx); err != nil {
		return err
	}
	return s.AtRest(ctx, RestWithin)
}

// Ask is a request from p1 to d1, for a cell that strikes them by name.
func (s *Stage) Ask(prompt, tokens int) traffic.Ask {
	return traffic.Ask{Model: s.Options.ModelName(), Prompt: traffic.Words(prompt), MaxTokens: tokens, Seed: 7,
		Prefill: "p1", Decode: "d1", Deadline: 20 * time.Second}
}

// Logs are the last complaints of every process.
func (s *Stage) Logs() string {
	const each = 4
	var out strings.Builder
	for _, p := range s.Processes() {
		lines := slices.DeleteFunc(strings.Split(p.Tail(), "\n"), func(line string) bool {
			return !strings.Contains(line, "WARN") && !strings.Contains(line, "ERROR") && !strings.Contains(line, "panic")
		})
		for _, line := range lines[max(0, len(lines)-each):] {
			fmt.Fprintf(&out, "%s: %.400s\n", p.Name(), line)
		}
	}
	return out.String()
}
