package orchestrator

import (
	"context"
	"time"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/contracts/handoff"
)

// tokenizeWithin is how long one engine may take to count.
const tokenizeWithin = time.Second

// Tokenize asks the engines of a model in turn until one answers. Which one
// does so does not matter: all of a revision count alike.
func (o *Orchestrator) Tokenize(ctx context.Context, m Model, t engine.Text) (engine.Tokenized, error) {
	engines, err := o.fleet.view(ctx)
	if err != nil {
		return engine.Tokenized{}, err
	}
	err = handoff.Errorf(handoff.CodeUnavailable, "no engine of the model can be asked for its tokens")
	for _, e := range engines {
		if e.Model != m.Name || e.Revision != m.Revision || !e.Tokenizes || e.Cordoned {
			continue
		}
		var got engine.Tokenized
		if got, err = o.tokenizeAt(ctx, e.Address, t); err == nil || handoff.CodeOf(err) != handoff.CodeUnavailable {
			return got, err
		}
	}
	return engine.Tokenized{}, err
}

func (o *Orchestrator) tokenizeAt(ctx context.Context, address string, t engine.Text) (engine.Tokenized, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenizeWithin)
	defer cancel()
	e, err := o.cfg.Engines.Engine(address)
	if err != nil {
		return engine.Tokenized{}, err
	}
	counts, ok := e.(engine.Tokenizer)
	if !ok {
		return engine.Tokenized{}, handoff.Errorf(handoff.CodeInternal, "an engine that tokenizes is spoken to by an adapter that does not")
	}
	return counts.Tokenize(ctx, t)
}

// tokens of a request's prompt.
func (o *Orchestrator) tokens(r Request) uint32 {
	if r.Tokens > 0 {
		return r.Tokens
	}
	return o.cfg.CountTokens(r.Prompt)
}
