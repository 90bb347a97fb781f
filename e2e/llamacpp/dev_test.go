package llamacpp

import (
	"testing"

	"github.com/surehand/surehand/e2e/fleet/fleettest"
)

func TestDevAnswersWithLlamaCPP(t *testing.T) {
	fleettest.DevAnswers(t, built, answerWithin, "--engine", "llamacpp")
}
