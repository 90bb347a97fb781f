package connector

import (
	"context"
	"strings"
	"testing"

	"github.com/surehand/surehand/e2e/traffic"
	"github.com/surehand/surehand/workers/vllmenv"
)

const corpus = "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife. "

func TestOneHandoff(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), answerWithin)
	defer cancel()
	ask := traffic.Ask{Model: vllmenv.Served, Prompt: strings.Repeat(corpus, 6), MaxTokens: 12}
	a := rig.gateway().Send(ctx, ask)
	t.Logf("%+v", a)
	if err := rig.AtRest(ctx, restWithin); err != nil {
		t.Error(err)
	}
}
