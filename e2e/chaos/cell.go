package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

// Cell of the matrix.
type Cell struct {
	Fault, Victim string
	Phase         Phase
}

func (c Cell) String() string { return c.Fault + "/" + c.Victim + "/" + string(c.Phase) }

// All cells, faults by name, victims and phases in their order.
func All() []Cell {
	var out []Cell
	for _, f := range Faults() {
		for _, v := range f.Victims {
			for _, p := range Phases {
				out = append(out, Cell{f.Name, v, p})
			}
		}
	}
	return out
}

// Result of a cell. It holds when nothing is broken and it was not skipped.
type Result struct {
	Cell
	Required string
	Verdict  string // of the request that was struck
	Again    string // of the same key, through the other gateway
	Broken   []string
	Skipped  string // why it could not run here
	Seconds  float64
	Events   []string // the daemons' trace
	History  string   // of the handoff, as Temporal has it
}

// Holds says whether the cell ran and everything it requires is true.
func (r Result) Holds() bool { return r.Skipped == "" && len(r.Broken) == 0 }

// tries of a cell whose request was over before the phase began.
const tries = 3

// Run runs one cell.
func (s *Stage) Run(ctx context.Context, c Cell) (r Result) {
	r.Cell = c
	began := time.Now()
	defer func() { r.Seconds = time.Since(began).Seconds() }()
	f, err := find(c.Fault)
	if err != nil {
		r.Broken = []string{err.Error()}
		return r
	}
	r.Required = f.expected(c.Victim, c.Phase).String()
	if err := f.Available(s); err != nil {
		r.Skipped = err.Error()
		return r
	}
	for range tries {
		run := &run{Stage: s, Cell: c, f: f, mended: make(chan struct{})}
		missed := run.all(ctx)
		r.Verdict, r.Again, r.Broken, r.Events, r.History = run.verdict, run.againVerdict, run.broken, run.events(), run.history(ctx)
		if !missed {
			return r
		}
	}
	r.Broken = append(r.Broken, fmt.Sprintf("missed its phase %d times", tries))
	return r
}

// run is one try of a cell.
type run struct {
	*Stage
	Cell
	f    Fault
	ask  traffic.Ask
	mark fleet.Mark
	heal Heal

	answer                traffic.Answer
	verdict, againVerdict string
	broken                []string
	once                  sync.Once
	mended                chan struct{} // closed when healed
	mendErr               error
}

// must notes a violation.
func (r *run) must(what string, err error) {
	if err != nil {
		r.broken = append(r.broken, what+": "+err.Error())
	}
}

func (r *run) all(ctx context.Context) (missed bool) {
	ctx, cancel := context.WithTimeout(ctx, 2*RequestWithin+4*RestWithin)
	defer cancel()
	if err := r.Ready(ctx); err != nil {
		r.must("before the cell", err)
		return false
	}
	if r.f.Prepare != nil {
		if err := r.f.Prepare(ctx, r.Stage); err != nil {
			r.must("preparing", err)
			return false
		}
	}
	r.ask = r.Ask(LongPrompt, AnswerLong)
	r.ask.Key = fmt.Sprintf("%s-%s-%s-%d", r.Fault, r.Victim, r.Phase, time.Now().UnixNano())
	r.mark = r.Mark()
	struck := r.strike(ctx)
	if r.heal == nil { // never injected
		if errors.Is(struck, fault.ErrMissed) && len(r.broken) == 0 {
			return true
		}
		r.must("injecting", struck)
		return false
	}
	r.verdict = Verdict(r.answer)
	want := r.f.expected(r.Victim, r.Phase)
	r.must("required "+want.String(), Required(want, r.answer, AnswerLong))
	r.askAgain(ctx)
	<-r.mended
	r.must("healing", r.mendErr)
	r.afterwards(ctx)
	return false
}

// strike sends the request and injects in the cell's phase.
func (r *run) strike(ctx context.Context) (err error) {
	c := r.Clients["g1"]
	switch r.Phase {
	case Admit:
		if err := r.inject(ctx); err != nil {
			return err
		}
		r.answer = c.Send(ctx, r.ask)
		return nil
	case Idle:
		if err := r.inject(ctx); err != nil {
			return err
		}
		<-r.mended
		r.must("after the healing", errors.Join(r.Fine(ctx, c), r.Serves(ctx)))
		r.answer = c.Send(ctx, r.ask)
		return nil
	}
	client, leave := context.WithCancel(ctx)
	defer leave()
	struck, err := fault.Strike(client, r.Fleet, c, r.ask, seen[r.Phase], func(fleet.Event) error {
		err := r.inject(ctx)
		if r.Phase == Cancel {
			leave()
		}
		return err
	})
	r.answer = struck.Answer
	return err
}

// inject begins the fault and plans its end.
func (r *run) inject(ctx context.Context) error {
	heal, err := r.f.Inject(ctx, r.Stage, r.Victim)
	if err != nil {
		r.must("the fault itself", err)
		return err
	}
	r.heal = heal
	go func() {
		wait := time.NewTimer(held)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-ctx.Done():
		}
		over := context.WithoutCancel(ctx)
		r.mendErr = errors.Join(heal(over), r.Fleet.Heal(over))
		close(r.mended)
	}()
	return nil
}

// askAgain is the client that comes again with its key, through the other
// gateway, while the fault lasts. It is told the same sampling, or a typed
// refusal; where only its gateway died, all of it.
func (r *run) askAgain(ctx context.Context) {
	ask := r.ask
	ask.Prefill, ask.Decode = "", "" // the one that it named may be the dead one
	again, _ := r.Clients["g2"].Insist(ctx, ask, held, 200*time.Millisecond)
	r.againVerdict = Verdict(again)
	want := Ends
	// At the commit only what was committed sticks: the decode's lease may end
	// before anybody is named to read it.
	if r.Fault == "kill" && r.Victim == "g1" && r.Phase != Commit && r.Phase != Cancel {
		want = Whole
	}
	r.must("again, required "+want.String(), Required(want, again, AnswerLong))
	if again.Whole() == nil && r.answer.Pieces > 0 && !strings.HasPrefix(again.Text, r.answer.Text) {
		r.must("again", fmt.Errorf("sampled again: %q after %q", again.Text, r.answer.Text))
	}
}

// afterwards checks what is true of every cell at rest.
func (r *run) afterwards(ctx context.Context) {
	r.must("at rest", r.AtRest(ctx, RestWithin))
	r.must("one owner", OneOwner(r.Since(r.mark)))
	ask := r.ask
	ask.Prefill, ask.Decode = "", ""
	r.must("the key sticks", r.Sticks(ctx, ask, r.mark))
	r.must("afterwards", r.Fine(ctx, r.Clients["g1"]))
}

// mostEvents kept of one cell's trace.
const mostEvents = 200

func (r *run) events() []string {
	var out []string
	for _, e := range r.Since(r.mark) {
		if out = append(out, e.String()); len(out) == mostEvents {
			break
		}
	}
	return slices.Clip(out)
}

// history of the struck handoff, where one can be had.
func (r *run) history(ctx context.Context) string {
	id := r.answer.Handoff
	if id == "" {
		return ""
	}
	h, err := r.History(ctx, fleet.DefaultTenant, id)
	if err != nil {
		return err.Error()
	}
	return fleet.Tell(h)
}
