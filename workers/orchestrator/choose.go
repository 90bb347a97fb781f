package orchestrator

import (
	"encoding/json"
	"math/rand/v2"
	"sync"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/activities/placement"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// chooser applies placement to the fleet's view and keeps the breakers: each
// attempt takes a permit when it is planned and settles it once, by what became
// of its steps.
type chooser struct {
	breakers *placement.Breakers
	layouts  placement.Layouts

	mu       sync.Mutex
	permits  map[handoff.Attempt]permit
	inFlight map[handoff.EngineID]uint64 // prompt tokens sent to P and not prefilled yet
}

type permit struct {
	*placement.Permit
	p      handoff.EngineID
	tokens uint64
}

func newChooser(onChange func(name, to string)) *chooser {
	return &chooser{breakers: placement.NewBreakers(onChange), permits: map[handoff.Attempt]permit{}, inFlight: map[handoff.EngineID]uint64{}}
}

// choose proposes P and D; why is small and goes into the history.
func (c *chooser) choose(engines []ledger.Registered, in steps.Input, pin pins, exclude []handoff.EngineID) (placement.Choice, json.RawMessage, error) {
	r := placement.Request{Model: in.Model, Revision: in.Revision, PromptTokens: in.PromptTokens, GrowthTokens: in.Sampling.MaxTokens,
		ContextTokens: in.PromptTokens + in.Sampling.MaxTokens, Deadline: in.Deadline,
		PinP: handoff.EngineID(pin.prefill), PinD: handoff.EngineID(pin.decode), Exclude: exclude}
	choice, err := placement.Place(r, placement.Fleet{Engines: engines, InFlight: c.loads(), Blocked: c.breakers, Layouts: &c.layouts}, rand.IntN)
	if err != nil {
		return choice, nil, err
	}
	why, err := json.Marshal(choice)
	if err != nil {
		return choice, nil, handoff.Errorf(handoff.CodeInternal, "placement's reasons: %s", err.Error())
	}
	return choice, why, nil
}

func (c *chooser) loads() map[handoff.EngineID]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[handoff.EngineID]uint64, len(c.inFlight))
	for e, n := range c.inFlight {
		out[e] = n
	}
	return out
}

// begin takes the permit of an attempt that is now planned.
func (c *chooser) begin(p handoff.Plan, tokens uint32) error {
	got, err := c.breakers.Take(p.P.Engine, p.D.Engine)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.permits[p.Attempt] = permit{got, p.P.Engine, uint64(tokens)}
	c.inFlight[p.P.Engine] += uint64(tokens)
	return nil
}

// step hears the end of a step of an attempt that was planned here.
func (c *chooser) step(a handoff.Attempt, s handoff.Step, err error) {
	blame, judged := blames[s]
	if !judged || err == nil && s != handoff.StepCommit {
		return
	}
	c.mu.Lock()
	p, ok := c.permits[a]
	delete(c.permits, a)
	if ok {
		if c.inFlight[p.p] -= p.tokens; c.inFlight[p.p] == 0 {
			delete(c.inFlight, p.p)
		}
	}
	c.mu.Unlock()
	if !ok {
		return
	}
	p.Done(err, blame)
}

// blames says whose failure a failed step is.
var blames = map[handoff.Step]placement.Blame{handoff.StepReserve: placement.BlameD, handoff.StepPrefill: placement.BlameP,
	handoff.StepTransfer: placement.BlameLink, handoff.StepCommit: placement.BlameD}

// errNotBegun settles the permit of an attempt that was planned and not tried.
var errNotBegun = handoff.Errorf(handoff.CodeClosed, "not begun")
