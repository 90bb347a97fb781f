// Package activities performs the steps of a handoff: one file a step. Each is
// idempotent under (handoff, epoch, operation id):
//
//	step           why a repeat is harmless
//	reserve        ledger entry keyed by attempt; D and TD answer the open target's own token
//	prefill        P joins the run of the attempt; a closed attempt stays closed
//	transfer       TD joins the pull of the target; a validated target answers at once
//	commit         TD's table: committed once, a repeat answers the present state
//	undo-transfer  TD's table: closed is final, a commit is never taken back by it
//	undo-prefill   TP's table: closed is final
//	undo-reserve   the ledger is a set; a release that comes first leaves a tombstone
//	ask-reader     the reader's decision is recorded before it is answered
//	place          a pure choice; only the plan that history holds counts
//	watch-decode   looks only
//	settle         the ledger's outcome sticks
//	end-stream     the reader takes the first end
//	tell-reader    the reader keeps the newest attempt
//
// A typed refusal travels as an application error whose type is the code's
// name; only a code whose advice is "retry same epoch" is retried by Temporal.
package activities

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/activities/mover"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// Readers asks the reader that history names, wherever it lives (rule 5c).
type Readers interface {
	// GiveUp: true when given up, false when delivering. An error proves nothing.
	GiveUp(ctx context.Context, at steps.ReaderAt, a handoff.Attempt) (bool, error)
	// Planned names the newest planned attempt; token may be zero.
	Planned(ctx context.Context, at steps.ReaderAt, p handoff.Plan, r steps.Route, token handoff.Token) error
	// Ended says that the handoff ended without (more of) a stream.
	Ended(ctx context.Context, at steps.ReaderAt, a handoff.Attempt, code handoff.Code, detail string) error
}

// Placer chooses the next plan's seats.
type Placer interface {
	Place(ctx context.Context, in steps.Input, exclude []handoff.EngineID) (p, d handoff.Seat, route steps.Route, err error)
	// Begin takes the breakers' leave for an attempt that is now planned here.
	Begin(p handoff.Plan, promptTokens uint32) error
	// Step hears how each step of an attempt ended.
	Step(a handoff.Attempt, step handoff.Step, err error)
}

// Bodies finds what the client wrote: in memory on the hot path, in the claim
// check store for recovery. Never in a history.
type Bodies interface {
	Body(ctx context.Context, tenant string, h handoff.HandoffID) (Body, error)
}

// Body is the part of a request that histories must not hold.
type Body struct {
	Prompt []byte   `json:"prompt"`
	Stop   []string `json:"stop,omitempty"`
	Salt   string   `json:"salt,omitempty"` // of the tenant's prefix caches; empty: the tenant's name
}

// salt keeps the prefix caches of tenants apart (S16).
func (b Body) salt(tenant string) string { return cmp.Or(b.Salt, tenant) }

// Observer hears what steps do, for metrics.
type Observer interface {
	Step(step handoff.Step, code handoff.Code, took time.Duration)
}

// Steps performs steps. All fields are needed but those that may be nil.
type Steps struct {
	Ledger   ledger.Ledger
	Engines  engine.Directory
	Movers   mover.Directory
	Readers  Readers
	Placer   Placer
	Bodies   Bodies
	Attempts *Attempts
	Observer Observer
	Log      *slog.Logger
	// SerialBelow is the prompt length, in tokens, below which the pull starts
	// only once the prefill is sealed: short prompts lose by overlap.
	SerialBelow uint32
	// RequireLane is the transport that every pull must use, or it is refused as a
	// mismatch before a byte moves; empty: the best that there is.
	RequireLane string
	// Delivered finds the tokens that were delivered before a resume, as text.
	Delivered func(context.Context, steps.Input) ([]byte, error)
	// Scattered hears how long D's daemon took to bring a prompt's state into D's
	// layout; nil: nobody wants to know.
	Scattered func(p handoff.Plan, promptTokens uint32, took time.Duration)
	// Local says whether a reader is this very process.
	Local func(steps.ReaderAt) bool
}

type stepFunc func(context.Context, steps.StepInput) (steps.Output, error)

func (s *Steps) table() map[handoff.Step]stepFunc {
	return map[handoff.Step]stepFunc{
		handoff.StepReserve: s.Reserve, handoff.StepPrefill: s.Prefill, handoff.StepTransfer: s.Transfer,
		handoff.StepCommit: s.Commit, handoff.StepUndoTransfer: s.UndoTransfer, handoff.StepUndoPrefill: s.UndoPrefill,
		handoff.StepUndoReserve: s.UndoReserve, handoff.StepAskReader: s.AskReader, handoff.StepPlace: s.Place,
		steps.StepWatch: s.Watch, steps.StepSettle: s.Settle, steps.StepTell: s.Tell, steps.StepEnd: s.End,
	}
}

// Register makes every step an activity of w, under its own name.
func (s *Steps) Register(w worker.ActivityRegistry) {
	for name, fn := range s.table() {
		w.RegisterActivityWithOptions(s.activity(name, fn), activity.RegisterOptions{Name: string(name)})
	}
}

// planning steps are those that a reset run must not perform (rule 13).
func planning(s handoff.Step) bool {
	switch s {
	case handoff.StepReserve, handoff.StepPrefill, handoff.StepTransfer, handoff.StepCommit, handoff.StepPlace:
		return true
	}
	return false
}

// activity wraps a step for Temporal: rule 13, heartbeats, typed errors, metrics.
func (s *Steps) activity(name handoff.Step, fn stepFunc) func(context.Context, steps.StepInput) (steps.Output, error) {
	return func(ctx context.Context, in steps.StepInput) (steps.Output, error) {
		began := time.Now()
		clock := s.Attempts.clock(in.Request.Plan.Attempt)
		start := clock()
		var out steps.Output
		var err error
		if run := activity.GetInfo(ctx).WorkflowExecution.RunID; planning(name) && in.OriginalRunID != run {
			err = handoff.Errorf(handoff.CodeReset, "run %s was reset from %s", run, in.OriginalRunID)
		} else {
			if name == steps.StepSettle && in.OriginalRunID != run && in.Outcome != nil && !in.Outcome.Sticks() {
				spent := *in.Outcome // what an epoch came to that this run's history forgot, nobody knows
				spent.Code, in.Outcome = handoff.CodeReset.String(), &spent
			}
			stop := beating(ctx)
			out, err = inTrace(name, fn)(ctx, in)
			stop()
		}
		if out.EndMicros == 0 { // a joined run tells its own times
			out.StartMicros, out.EndMicros = start, clock()
		}
		s.Observer.Step(name, handoff.CodeOf(err), time.Since(began))
		s.Placer.Step(in.Request.Plan.Attempt, name, err)
		return out, applicationError(out, err)
	}
}

// applicationError is how a refusal crosses Temporal: the code is its type, and
// what the step told before it (when, where) is its detail.
func applicationError(out steps.Output, err error) error {
	if err == nil {
		return nil
	}
	code := handoff.CodeOf(err)
	detail := err.Error()
	if e, ok := err.(*handoff.Error); ok {
		detail = e.Detail
	}
	return temporal.NewApplicationErrorWithOptions(steps.Clip(detail), code.String(),
		temporal.ApplicationErrorOptions{NonRetryable: code.Advice() != handoff.RetrySame, Details: []any{out}})
}

// beating heartbeats a normal activity once a second until the step's end; a
// local one needs none.
func beating(ctx context.Context) (stop func()) {
	if activity.GetInfo(ctx).IsLocalActivity {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(beatEvery)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				activity.RecordHeartbeat(ctx)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

const beatEvery = time.Second

// operation is the id under which a daemon records what this step asks.
func operation(in steps.StepInput, s handoff.Step) handoff.OperationID {
	return in.Request.Plan.Attempt.Operation(string(s))
}
