package workflows_test

import (
	"context"
	"sync"

	"go.temporal.io/sdk/testsuite"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// gate is a gateway's record of one client's stream: a reader.
type gate struct {
	mu        sync.Mutex
	reader    handoff.Reader
	reading   handoff.Reading
	planned   []handoff.Attempt
	delivered []handoff.Attempt
	ended     []string // codes
	silent    bool
	left      bool // its client left
}

// gate gives a reader by process, made when first asked for.
func (f *flow) gate(process string) *gate {
	if f.gates[process] == nil {
		f.gates[process] = &gate{reader: handoff.Reader{Process: process, Incarnation: 1, Number: uint32(len(f.gates)) + 1}}
	}
	return f.gates[process]
}

func (f *flow) reach(at steps.ReaderAt) (*gate, error) {
	g := f.gates[at.Reader.Process]
	switch {
	case g == nil || g.silent:
		return nil, handoff.Errorf(handoff.CodeUnavailable, "no answer from %s", at.Address)
	case g.reader.Incarnation != at.Reader.Incarnation:
		return nil, handoff.Errorf(handoff.CodeStaleIncarnation, "another life")
	}
	return g, nil
}

// GiveUp implements activities.Readers.
func (f *flow) GiveUp(_ context.Context, at steps.ReaderAt, a handoff.Attempt) (bool, error) {
	g, err := f.reach(at)
	if err != nil {
		return false, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reading.GiveUp(a) == handoff.ReaderGivenUp, nil
}

// Planned implements activities.Readers.
func (f *flow) Planned(_ context.Context, at steps.ReaderAt, p handoff.Plan, _ steps.Route, _ handoff.Token) error {
	g, err := f.reach(at)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.left {
		return handoff.Errorf(handoff.CodeGone, "no open stream")
	}
	g.reading.Newest(p.Attempt)
	g.planned = append(g.planned, p.Attempt)
	return nil
}

// Ended implements activities.Readers.
func (f *flow) Ended(_ context.Context, at steps.ReaderAt, _ handoff.Attempt, code handoff.Code, _ string) error {
	g, err := f.reach(at)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = append(g.ended, code.String())
	return nil
}

// report tells the stream's end as a gateway does: a good one by an update, a bad
// one, or any where updates fail, by a signal.
func (f *flow) report(g *gate, e steps.Ended) {
	e.Reader = g.reader
	if e.Code != "" || f.signals {
		f.env.SignalWorkflow(steps.SignalEnded, e)
		return
	}
	f.env.UpdateWorkflow(steps.UpdateEnded, e.Attempt.String(), &testsuite.TestUpdateCallback{OnAccept: func() {},
		OnReject: func(err error) { f.t.Errorf("the end was refused: %v", err) }, OnComplete: func(any, error) {}}, e)
}

// deliver asks the reader of a plan for leave to write a byte of it.
func (f *flow) deliver(p handoff.Plan) (*gate, bool) {
	g := f.gates[p.Reader.Process]
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.silent || !g.reading.Deliver(p.Attempt) {
		return g, false
	}
	g.delivered = append(g.delivered, p.Attempt)
	return g, true
}

// whole is a stream that ends well.
func (f *flow) whole(p handoff.Plan) {
	if g, ok := f.deliver(p); ok {
		f.w.Finish(string(p.D.Engine), p.Attempt)
		f.report(g, steps.Ended{Attempt: p.Attempt, Finish: "stop", Usage: steps.Usage{Prompt: 39, Completion: 5, Direct: 39}})
	}
}

// broken is a stream that ends after its first token.
func (f *flow) broken(p handoff.Plan) {
	if g, ok := f.deliver(p); ok {
		f.report(g, steps.Ended{Attempt: p.Attempt, Code: "stream_broken", Detail: "after position 2", Usage: steps.Usage{Completion: 2}})
	}
}

// lostOnce is a stream that its reader gives up before the first token; the
// next epoch's is whole.
func (f *flow) lostOnce(p handoff.Plan) {
	f.stream = f.whole
	g := f.gates[p.Reader.Process]
	g.mu.Lock()
	given := g.reading.GiveUp(p.Attempt) == handoff.ReaderGivenUp
	g.mu.Unlock()
	if given {
		f.report(g, steps.Ended{Attempt: p.Attempt, Code: "engine", Detail: "D broke"})
	}
}

// nobody is a stream that is never read.
func (f *flow) nobody(handoff.Plan) {}
