package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// run is one execution's state. Workflow code is single-threaded: no locks.
type run struct {
	in      steps.Input // Plan and Route of the present epoch
	coord   *handoff.Coordinator
	routes  map[handoff.Epoch]steps.Route
	reader  steps.ReaderAt
	exclude []handoff.EngineID
	spans   []steps.Span
	parked  []string
	bytes   uint64
	ended   *steps.Ended
	lost    *steps.Ended // a stream given up before its attempt was known to be committed

	attempt workflow.Context // of the steps of the present attempt
	stop    workflow.CancelFunc
	root    workflow.Context
	undo    workflow.Context // disconnected
	running int
	changed bool
	settled bool
}

func newRun(ctx workflow.Context, in steps.Input) *run {
	r := &run{in: in, root: ctx, routes: map[handoff.Epoch]steps.Route{in.Plan.Attempt.Epoch: in.Route},
		reader: steps.ReaderAt{Reader: in.Plan.Reader, Address: in.ReaderAddress}}
	r.coord = handoff.NewCoordinator(in.Plan, handoff.Policy{MaxEpochs: in.MaxEpochs, Detach: in.Record == steps.RecordHandoff})
	r.undo, _ = workflow.NewDisconnectedContext(ctx)
	r.attempt, r.stop = workflow.WithCancel(ctx)
	return r
}

// replan takes over the plan that StepPlace put into history (rule 2).
func (r *run) replan() {
	r.stop()
	r.in.Plan = r.coord.Plan()
	r.in.Route = r.routes[r.in.Plan.Attempt.Epoch]
	r.attempt, r.stop = workflow.WithCancel(r.root)
}

// listen follows the client's cancel and the reader's signals.
func (r *run) listen(ctx workflow.Context) {
	must(workflow.SetQueryHandler(ctx, steps.QueryState, func() (steps.State, error) { return r.state(), nil }))
	workflow.Go(ctx, func(ctx workflow.Context) {
		ctx.Done().Receive(ctx, nil)
		r.coord.Cancel()
		r.stop()
		r.changed = true
	})
	workflow.Go(r.undo, func(ctx workflow.Context) {
		ch := workflow.GetSignalChannel(ctx, steps.SignalEnded)
		for {
			var e steps.Ended
			ch.Receive(ctx, &e)
			r.streamEnded(e)
			r.changed = true
		}
	})
	workflow.Go(r.undo, func(ctx workflow.Context) {
		ch := workflow.GetSignalChannel(ctx, steps.SignalReattach)
		for {
			var at steps.ReaderAt
			ch.Receive(ctx, &at)
			r.reattach(ctx, at)
			r.changed = true
		}
	})
	if r.in.Record == steps.RecordRequest {
		workflow.Go(r.undo, r.watchDecode)
	}
}

// streamEnded takes the reader's report. A stream that broke before its first
// token was given up by the reader before it reported: another epoch may follow.
func (r *run) streamEnded(e steps.Ended) {
	if e.Attempt != r.coord.Plan().Attempt {
		return // of a superseded attempt
	}
	code := handoff.CodeNone
	if e.Code != "" {
		code = handoff.ParseCode(e.Code)
	}
	if code != handoff.CodeNone && e.Usage.Completion == 0 && code.Advice() == handoff.NewEpoch {
		r.lost = &e
		r.loseStream()
		return
	}
	r.ended = &e
	r.coord.StreamEnded(code, e.Detail)
}

// loseStream acts on a given-up stream once the attempt is committed; before
// that the steps themselves find out what became of it.
func (r *run) loseStream() {
	if r.lost == nil || r.coord.Phase() != handoff.PhaseDecoding || r.lost.Attempt != r.coord.Plan().Attempt {
		return
	}
	r.coord.StreamLost(r.reader.Reader, handoff.ParseCode(r.lost.Code), r.lost.Detail)
	r.lost = nil
}

// reattach names another reader in history (rule 5c, clause 7) and tells it
// the newest planned attempt.
func (r *run) reattach(ctx workflow.Context, at steps.ReaderAt) {
	if at.Reader.Number <= r.reader.Reader.Number {
		return
	}
	r.reader = at
	r.coord.NameReader(at.Reader)
	r.tellReader(ctx)
}

func (r *run) state() steps.State {
	p := r.coord.Plan()
	s := steps.State{Phase: r.coord.Phase(), Epoch: p.Attempt.Epoch, Prefill: p.P.Engine, Decode: p.D.Engine,
		Reader: r.reader.Reader, Spans: r.spans, Bytes: r.bytes}
	if o := r.coord.Outcome(); o != nil {
		out := r.outcome()
		s.Outcome = &out
	}
	return s
}

func (r *run) outcome() steps.Outcome {
	o := r.coord.Outcome()
	p := r.coord.Plan()
	out := steps.Outcome{Attempt: o.Attempt, Committed: o.Committed, Detail: o.Detail, Prefill: p.P.Engine, Decode: p.D.Engine,
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

// must stops a workflow that cannot even register its query: a programming error.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
