package gateway

import (
	"context"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/workers/orchestrator"
)

// counted is the model's input.
type counted struct {
	prompt string
	tokens uint32 // as its engines count; 0: as the reference engine does
}

// length in tokens. The reference engine has one a byte, and two that frame the
// prompt.
func (t counted) length() uint64 {
	if t.tokens > 0 {
		return uint64(t.tokens)
	}
	return uint64(len(t.prompt)) + 2
}

// count makes the input of an ask: by the model's engines where they have a
// tokenizer and a chat template, else by our own rule.
func (g *Gateway) count(ctx context.Context, a *ask, m orchestrator.Model) (counted, error) {
	if !m.Tokenizes {
		if a.kind != kindText {
			return counted{prompt: render(a.messages)}, nil
		}
		return counted{prompt: a.prompt}, nil
	}
	var asked engine.Text
	size := len(a.prompt)
	if a.kind != kindText {
		for _, t := range a.messages {
			size += len(t.Role) + len(t.Content)
			asked.Messages = append(asked.Messages, engine.Message(t))
		}
	} else {
		asked.Prompt = []byte(a.prompt)
	}
	if err := a.bounded(size, a.field()); err != nil { // before an engine sees it
		return counted{}, err
	}
	got, err := g.Front.Tokenize(ctx, m, asked)
	return counted{prompt: string(got.Prompt), tokens: got.Tokens}, err
}
