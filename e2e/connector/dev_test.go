package connector

import (
	"testing"

	"github.com/surehand/surehand/e2e/fleet/fleettest"
)

// Each server has an import of its own.
func TestDevAnswersWithVLLM(t *testing.T) {
	fleettest.DevAnswers(t, built, answerWithin, "--engine", "vllm")
}
