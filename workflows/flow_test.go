package workflows_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/surehand/surehand/activities"
	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/activities/world"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
	"github.com/surehand/surehand/workflows"
)

// secret is the prompt; it must stand in no payload.
const secret = "the prompt nobody may read in a history"

// flow is one run of the workflow over a world in memory, with the real steps.
type flow struct {
	t     *testing.T
	env   *testsuite.TestWorkflowEnvironment
	w     *world.World
	gates map[string]*gate // readers by process
	steps *activities.Steps
	in    steps.Input
	log   *recorder

	mu      sync.Mutex
	calls   []call
	count   map[string]int
	faults  func(call) fault
	stream  func(handoff.Plan) // what D's stream does after a commit
	remote  bool               // the reader is another process than the worker
	reset   bool               // the run was reset
	signals bool               // the ends of streams come as signals

	prepare func(*testsuite.TestWorkflowEnvironment) // before the run
}

func newFlow(t *testing.T) *flow {
	w, err := world.New("p0", "p1", "d0", "d1", "d2")
	if err != nil {
		t.Fatal(err)
	}
	f := &flow{t: t, w: w, gates: map[string]*gate{}, count: map[string]int{}, log: newRecorder()}
	g := f.gate("gate-0")
	f.in = steps.Input{Tenant: "t", ID: "k1", Key: "hash", Model: world.Model, Revision: world.Revision, ReaderAddress: "gate-0",
		PromptTokens: uint32(len(secret)), Sampling: steps.Sampling{MaxTokens: 5}, Record: steps.RecordRequest,
		Deadline: time.Minute, Decode: 15 * time.Minute, Lease: handoff.LeaseDefault, Window: time.Hour,
		Route: w.Route("p0", "d0"),
		Plan: handoff.Plan{Attempt: handoff.Attempt{Handoff: "k1.a", Epoch: 1, Nonce: 0xa}, P: w.Seat("p0"), D: w.Seat("d0"),
			Reader: g.reader, BodyDigest: handoff.Digest{1}}}
	f.steps = &activities.Steps{Ledger: w.Ledger, Engines: w, Movers: w, Readers: f, Placer: placer{f}, Bodies: bodies{},
		Attempts: activities.NewAttempts(16), Observer: quiet{}, Log: slog.New(slog.DiscardHandler), SerialBelow: 16,
		Local: func(at steps.ReaderAt) bool { return !f.remote }}
	f.stream = f.whole
	w.OnCommit(func(p handoff.Plan) { f.stream(p) })
	t.Cleanup(f.steps.Attempts.Close)
	return f
}

// run executes the workflow to its end.
func (f *flow) run() (out steps.Outcome, err error) {
	f.t.Helper()
	got, err := f.w.Ledger.Claim(context.Background(), ledger.ClaimRequest{Tenant: f.in.Tenant, Key: f.in.Key, Body: f.in.Plan.BodyDigest,
		Handoff: f.in.Plan.Attempt.Handoff, Owner: "gate-0", Window: time.Hour})
	if err != nil || !got.Mine {
		f.t.Fatalf("claim: %v %v", got, err)
	}
	suite := testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	f.env = suite.NewTestWorkflowEnvironment()
	f.env.SetDataConverter(f.log)
	f.env.SetTestTimeout(20 * time.Second)
	f.env.RegisterWorkflowWithOptions(workflows.Handoff, workflow.RegisterOptions{Name: steps.Workflow})
	f.steps.Register(registry{f})
	if f.prepare != nil {
		f.prepare(f.env)
	}
	f.env.ExecuteWorkflow(steps.Workflow, f.in)
	if !f.env.IsWorkflowCompleted() {
		f.t.Fatalf("the workflow did not end; calls: %v", f.names())
	}
	err = f.env.GetWorkflowError()
	if err == nil {
		if e := f.env.GetWorkflowResult(&out); e != nil {
			f.t.Fatal(e)
		}
		return out, nil
	}
	var app *temporal.ApplicationError
	var cancelled *temporal.CanceledError
	switch {
	case errors.As(err, &app) && app.HasDetails():
		if e := app.Details(&out); e != nil {
			f.t.Fatal(e)
		}
	case errors.As(err, &cancelled) && cancelled.HasDetails():
		if e := cancelled.Details(&out); e != nil {
			f.t.Fatal(e)
		}
	default:
		f.t.Fatalf("the workflow ended untyped: %v", err)
	}
	return out, err
}

// clean demands that nothing is held any more (S8, S9) and that at most one
// attempt was ever delivered (S2, S10).
func (f *flow) clean() {
	f.t.Helper()
	if left := f.w.Left(); len(left) > 0 {
		f.t.Errorf("left behind: %s\ncalls: %v", strings.Join(left, "; "), f.names())
	}
	// A cancelled step may still look its attempt up after it was forgotten.
	for end := time.Now().Add(5 * time.Second); f.steps.Attempts.Len() > 0; time.Sleep(time.Millisecond) {
		if f.steps.Attempts.Sweep(0); time.Now().After(end) {
			f.t.Errorf("%d attempts are remembered", f.steps.Attempts.Len())
			break
		}
	}
	f.safe()
}

// safe is what holds after every run, whatever failed.
func (f *flow) safe() {
	f.t.Helper()
	for _, g := range f.gates {
		g.mu.Lock()
		defer g.mu.Unlock()
		if d := slices.Compact(slices.Clone(g.delivered)); len(d) > 1 {
			f.t.Errorf("reader %s delivered %d attempts", g.reader.Process, len(d))
		}
	}
	for _, p := range f.log.all() {
		if len(p) > steps.MaxPayloadBytes {
			f.t.Errorf("a payload has %d bytes, limit %d: %.200s", len(p), steps.MaxPayloadBytes, p)
		}
		if strings.Contains(p, secret) || strings.Contains(p, world.Capability) {
			f.t.Errorf("a payload holds what it must not: %.200s", p)
		}
	}
}

// key is what the ledger says of the idempotency key: an outcome, "claimed" or "free".
func (f *flow) key() string {
	f.t.Helper()
	got, err := f.w.Ledger.Claim(context.Background(), ledger.ClaimRequest{Tenant: f.in.Tenant, Key: f.in.Key, Body: f.in.Plan.BodyDigest,
		Handoff: "probe", Owner: "probe", Window: time.Hour})
	switch {
	case err != nil:
		f.t.Fatal(err)
	case got.Mine:
		return "free"
	case got.State == ledger.StateSettled:
		return string(got.Outcome)
	}
	return "claimed"
}

func (f *flow) names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]string, len(f.calls))
	for i, c := range f.calls {
		out[i] = c.String()
	}
	return out
}

// tries counts the calls of a step of an epoch.
func (f *flow) tries(step handoff.Step, e handoff.Epoch) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if c.step == step && c.epoch == e {
			n++
		}
	}
	return n
}

// did says whether a step of an epoch ran.
func (f *flow) did(step handoff.Step, e handoff.Epoch) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.calls, func(c call) bool { return c.step == step && c.epoch == e })
}

type quiet struct{}

func (quiet) Step(handoff.Step, handoff.Code, time.Duration) {}

type bodies struct{}

func (bodies) Body(context.Context, string, handoff.HandoffID) (activities.Body, error) {
	return activities.Body{Prompt: []byte(secret)}, nil
}

// placer takes the first engines that are not excluded.
type placer struct{ f *flow }

func (p placer) Place(_ context.Context, _ steps.Input, exclude []handoff.EngineID) (handoff.Seat, handoff.Seat, steps.Route, error) {
	pick := func(names ...string) string {
		for _, n := range names {
			if !slices.Contains(exclude, handoff.EngineID(n)) {
				return n
			}
		}
		return ""
	}
	pe, de := pick("p0", "p1"), pick("d0", "d1", "d2")
	if pe == "" || de == "" {
		return handoff.Seat{}, handoff.Seat{}, steps.Route{}, handoff.Errorf(handoff.CodeCapacity, "no engine is left")
	}
	return p.f.w.Seat(pe), p.f.w.Seat(de), p.f.w.Route(pe, de), nil
}

func (placer) Begin(handoff.Plan, uint32) error                { return nil }
func (placer) Step(_ handoff.Attempt, _ handoff.Step, _ error) {}
