package scenario

import (
	"fmt"

	"github.com/surehand/surehand/e2e/traffic"
)

// verdict is an answer in one word or two.
func verdict(a traffic.Answer) string {
	switch {
	case a.Whole() == nil:
		return fmt.Sprintf("whole (%d tokens)", a.Usage.Completion)
	case a.Failure != nil && a.Broken == nil:
		return fmt.Sprintf("%s after %d pieces (%.80s)", a.Failure.Code, a.Pieces, a.Failure.Message)
	}
	return fmt.Sprintf("broken after %d pieces", a.Pieces)
}
