package llamacpp

import (
	"strings"
	"testing"

	"github.com/surehand/surehand/e2e/fleet/fleettest"
	"github.com/surehand/surehand/e2e/traffic"
)

// As a visitor starts it.
func TestDevAnswersWithLlamaCPP(t *testing.T) {
	ready := fleettest.Dev(t, built, "--engine", "llamacpp")
	c, err := traffic.NewClientOf(ready.HTTP)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a := c.Send(within(t, answerWithin), traffic.Ask{Model: ready.Model, Prompt: "What is the capital of France?", MaxTokens: 16, Chat: true})
	if err := a.Whole(); err != nil || a.Usage.Direct != a.Usage.Prompt || !strings.Contains(a.Text, "Paris") {
		t.Errorf("%v, %q, %+v", err, a.Text, a.Usage)
	}
	t.Logf("%s, ready after %.0f s: %q, %+v", ready.Model, ready.Seconds, a.Text, a.Usage)
}
