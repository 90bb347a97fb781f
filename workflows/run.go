package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// run is one execution's state. Workflow code is single-threaded: no locks.
type run struct {
	in      steps.Input // Plan and Route of the present epoch
	began   time.Time
	coord   *handoff.Coordinator
	routes  map[handoff.Epoch]steps.Route
	tokens  map[handoff.Epoch]handoff.Token // what the reader needs to attach
	reader  steps.ReaderAt
	exclude []handoff.EngineID
	spans   []steps.Span
	room    int // for spans, in bytes
	parked  []string
	bytes   uint64
	ended   *steps.Ended

	attempt   workflow.Context // of the steps of the present attempt
	stop      workflow.CancelFunc
	hush      workflow.CancelFunc // ends telling a reader what is no longer so
	root      workflow.Context
	undo      workflow.Context // disconnected
	waits     []waiting
	running   int                     // of them, those that the run does not end before
	changed   bool                    // by a handler
	ends      workflow.ReceiveChannel // the reader's word
	readers   workflow.ReceiveChannel // a client that came back
	cancelled bool                    // the client's cancel was heard
	first     handoff.Epoch
	expired   bool                // the deadline of the first token passed
	untime    workflow.CancelFunc // ends watching the deadline; nil: it is not watched
	unawait   workflow.CancelFunc // ends the wait for another reader
	watched   bool                // the decode is watched
	settled   bool

	unproven   bool // the outcome's
	unrecorded bool // the task that took the present plan may not be history yet
	toldEnd    handoff.Reader
	since      time.Time      // the present way to a first token began
	resumed    *steps.Resumed // the last one
	pin        *steps.Pin     // an operator's
}

func newRun(ctx workflow.Context, in steps.Input) *run {
	r := &run{in: in, root: ctx, began: workflow.GetInfo(ctx).WorkflowStartTime, since: workflow.GetInfo(ctx).WorkflowStartTime, room: maxSpanBytes, first: in.Plan.Attempt.Epoch,
		routes: map[handoff.Epoch]steps.Route{in.Plan.Attempt.Epoch: in.Route}, tokens: map[handoff.Epoch]handoff.Token{},
		reader: steps.ReaderAt{Reader: in.Plan.Reader, Address: in.ReaderAddress}, hush: func() {}}
	r.coord = handoff.NewCoordinator(in.Plan, handoff.Policy{MaxEpochs: in.MaxEpochs, Detach: in.Record == steps.RecordHandoff, Unasked: !in.Asks, AnyWord: !in.AsksAgain})
	r.undo, _ = workflow.NewDisconnectedContext(ctx)
	r.attempt, r.stop = workflow.WithCancel(ctx)
	return r
}

// replan takes over the plan that StepPlace put into history (rule 2). Nothing acts
// under it before the task that took it is history too: of what came since, a worker
// that goes on for one that was lost within its task hears signals first, and a
// cancel or another reader heard before the plan voids it.
func (r *run) replan() {
	r.stop()
	r.hush()
	r.in.Plan = r.coord.Plan()
	r.in.Route = r.routes[r.in.Plan.Attempt.Epoch]
	r.attempt, r.stop = workflow.WithCancel(r.root)
	if r.recordsFirst() {
		r.unrecorded = true
		r.when(workflow.NewTimer(r.undo, recordPause), func(workflow.Future) { r.unrecorded = false })
	}
}

func (r *run) recordsFirst() bool {
	return workflow.GetVersion(r.undo, changeRecordedFirst, workflow.DefaultVersion, 1) != workflow.DefaultVersion
}

// listen follows the client's cancel and the reader's word.
func (r *run) listen(ctx workflow.Context) {
	must(workflow.SetQueryHandler(ctx, steps.QueryState, func() (steps.State, error) { return r.state(), nil }))
	must(workflow.SetUpdateHandler(ctx, steps.UpdateEnded, func(_ workflow.Context, e steps.Ended) error {
		r.streamEnded(e)
		r.changed = true
		return nil
	}))
	must(workflow.SetUpdateHandlerWithOptions(ctx, steps.UpdateSteer, func(_ workflow.Context, s steps.Steer) (steps.Steered, error) {
		return r.steer(s), nil
	}, workflow.UpdateHandlerOptions{Validator: r.maySteer}))
	r.ends = workflow.GetSignalChannel(r.undo, steps.SignalEnded)
	r.readers = workflow.GetSignalChannel(r.undo, steps.SignalReattach)
}

// called says that something came from outside.
func (r *run) called() bool {
	return r.ends.Len() > 0 || r.readers.Len() > 0 || !r.cancelled && r.root.Err() != nil
}

// hear takes what came from outside.
func (r *run) hear() {
	if !r.cancelled && r.root.Err() != nil {
		r.cancelled = true
		r.coord.Cancel()
	}
	for e := (steps.Ended{}); r.ends.ReceiveAsync(&e); e = (steps.Ended{}) {
		r.streamEnded(e)
	}
	for at := (steps.ReaderAt{}); r.readers.ReceiveAsync(&at); at = (steps.ReaderAt{}) {
		r.reattach(at)
	}
}

// mind starts what watches over a phase when the phase is first reached.
func (r *run) mind() {
	if !r.coord.Ended() {
		r.unwatch()
	}
	if r.untime == nil && r.onTheWay() {
		r.deadline()
	}
	if !r.watched && r.in.Record == steps.RecordRequest && r.coord.Phase() == handoff.PhaseDecoding {
		r.watchDecode(watchEvery(r.in), false)
	}
}

// streamEnded takes the reader's report. A stream that broke before its first
// token was given up by the reader before it reported: another epoch may follow.
// Only the word of the reader that history names now counts: an earlier one
// gave up for itself, not for its successor (rule 5c).
func (r *run) streamEnded(e steps.Ended) {
	if e.Attempt != r.coord.Plan().Attempt || e.Reader != r.reader.Reader {
		return
	}
	code := steps.EndCode(e.Code)
	if code != handoff.CodeNone && (e.Usage.Completion == 0 || e.Lost) && code.Advice() == handoff.NewEpoch {
		r.decoded(e)
		r.coord.StreamLost(e.Reader, code, steps.Clip(e.Detail))
		r.avoid(r.coord.Plan().D.Engine)
		r.stop()
		return
	}
	if e.Resumed != nil && r.in.Resume == steps.ResumeReplay && r.coord.Outcome() == nil {
		r.resume(e, code)
		return
	}
	if r.coord.Outcome() == nil {
		r.ended = &e
		r.decoded(e)
	}
	r.coord.StreamEnded(code, steps.Clip(e.Detail))
}

// resume goes on behind what was delivered, under another epoch. The record of
// it is in history: in the reader's report, and in the input of what follows.
func (r *run) resume(e steps.Ended, code handoff.Code) {
	r.decoded(e)
	r.resumed = &steps.Resumed{From: e.Attempt.Epoch, Position: e.Resumed.Position}
	r.since, r.expired = workflow.Now(r.root), false
	r.coord.StreamResumes(e.Reader, code, steps.Clip(e.Detail))
	r.avoid(r.coord.Plan().D.Engine)
	r.stop()
}

// decoded puts the stream on the time line, from the commit on.
func (r *run) decoded(e steps.Ended) {
	p := r.coord.Plan()
	for _, s := range r.spans {
		if s.Step == handoff.StepCommit && s.Epoch == p.Attempt.Epoch {
			r.span(steps.Span{Step: handoff.StepDecode, Epoch: s.Epoch, Start: s.End, End: s.End + max(0, e.LastToken-e.FirstToken), Code: e.Code, Engine: string(p.D.Engine)})
			return
		}
	}
}

// reattach names another reader in history (rule 5c, clause 7) and tells it the
// newest planned attempt. What the earlier reader gave up, this one did not.
func (r *run) reattach(at steps.ReaderAt) {
	if at.Reader.Number <= r.reader.Reader.Number {
		return
	}
	r.reader = at
	r.coord.NameReader(at.Reader)
	if r.coord.Outcome() == nil {
		r.tell()
	}
}

// awaitReader waits until history names another reader, who can be asked, or the
// wait is over: until the deadline of the first token, and for a moment where that
// has passed while no worker ran. Who has nothing to come with is not waited for.
func (r *run) awaitReader(cmd handoff.Command) {
	waited := handoff.Result{Step: cmd.Step, Attempt: cmd.Plan.Attempt}
	if r.in.Nameless { // nobody will come
		r.apply(waited)
		return
	}
	if workflow.GetVersion(r.undo, changeAwaitReader, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		r.apply(waited)
		return
	}
	ctx, over := workflow.WithCancel(r.undo)
	r.unawait = over
	r.beside(workflow.NewTimer(ctx, max(r.left(r.undo), min(r.in.Deadline, readerGrace))), func(workflow.Future) { r.apply(waited) })
}

// deadline bounds the way to the first token over all epochs (L1). The attempt
// is stopped, and its failure then fenced like any other.
func (r *run) deadline() {
	ctx, untime := workflow.WithCancel(r.undo)
	r.untime = untime
	r.when(workflow.NewTimer(ctx, r.left(ctx)), func(workflow.Future) {
		if ctx.Err() == nil && r.onTheWay() {
			r.expired = true
			r.stop()
		}
	})
}

// unwatch ends what watches a deadline that no longer counts, or waits for a reader
// who came or is not needed any more.
func (r *run) unwatch() {
	if r.unawait != nil && (r.coord.NamesAnother() || r.coord.Phase() != handoff.PhaseFencing) {
		r.unawait()
		r.unawait = nil
	}
	if r.untime != nil && !r.onTheWay() {
		r.untime()
		r.untime = nil
	}
}

// onTheWay says that the clock has to be watched. The first epoch's steps are
// bounded by themselves, so that the happy path has no timer in its history.
func (r *run) onTheWay() bool {
	p := r.coord.Phase()
	first := r.coord.Plan().Attempt.Epoch == r.first && (p == handoff.PhaseMoving || p == handoff.PhaseCommitting)
	return !first && p != handoff.PhaseDecoding && r.coord.Outcome() == nil
}

// left is what remains of the way to the first token, whichever worker asks.
func (r *run) left(ctx workflow.Context) time.Duration {
	return max(leftMin, r.in.Deadline-workflow.Now(ctx).Sub(r.since))
}

func (r *run) state() steps.State {
	p := r.coord.Plan()
	s := steps.State{Phase: r.coord.Phase(), Epoch: p.Attempt.Epoch, Prefill: p.P.Engine, Decode: p.D.Engine,
		Reader: r.reader.Reader, Address: r.reader.Address, Plan: p, Route: r.routes[p.Attempt.Epoch], Spans: r.spans, Bytes: r.bytes, Input: r.in}
	s.Input.Route.Why, s.Input.Resumed = nil, r.resumed
	if o := r.coord.Outcome(); o != nil {
		out := r.outcome()
		out.Spans = nil
		s.Outcome = &out
	}
	return s
}

func (r *run) outcome() steps.Outcome {
	o := r.coord.Outcome()
	p := r.coord.Plan()
	out := steps.Outcome{Attempt: o.Attempt, Committed: o.Committed, Unproven: r.unproven, Detail: steps.Clip(o.Detail), Prefill: p.P.Engine, Decode: p.D.Engine,
		Bytes: r.bytes, Spans: r.spans, Parked: r.parked}
	if o.Code != handoff.CodeNone {
		out.Code = o.Code.String()
	}
	if r.ended != nil {
		out.Finish, out.Usage = r.ended.Finish, r.ended.Usage
	}
	return out
}

func (r *run) details() string {
	p := r.coord.Plan()
	return fmt.Sprintf("**%s** · epoch %d · P `%s` → D `%s` · %d bytes", r.coord.Phase(), p.Attempt.Epoch, p.P.Engine, p.D.Engine, r.bytes)
}

// must stops a workflow that cannot even register its handlers: a programming error.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
