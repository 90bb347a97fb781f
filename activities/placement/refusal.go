package placement

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
)

// When a refused client may come back.
const (
	RetryAfterMin     = time.Second
	RetryAfterMax     = 30 * time.Second
	RetryAfterBreaker = FailureOpen
)

// Refusal is why nothing was chosen. It unwraps to a *handoff.Error.
type Refusal struct {
	Code       handoff.Code
	Reason     Reason // the one that decided
	Detail     string // all of them, counted
	RetryAfter time.Duration
}

func (r *Refusal) Error() string { return r.Unwrap().Error() }

func (r *Refusal) Unwrap() error {
	return handoff.Errorf(r.Code, "no engine to place on (%s): %s", r.Reason, r.Detail)
}

// reasons counts what was said against whom.
type reasons struct {
	count  map[string]int
	sides  map[string]map[Reason]bool
	soon   time.Duration // least lateness of any P
	served map[string]bool
	shapes error // the first pair whose layouts cannot be
}

func (w *reasons) add(side string, r Reason) {
	if w.count == nil {
		w.count, w.sides, w.served = map[string]int{}, map[string]map[Reason]bool{}, map[string]bool{}
	}
	if r == "" {
		w.served[side] = true
		return
	}
	if w.sides[side] == nil {
		w.sides[side] = map[Reason]bool{}
	}
	w.sides[side][r] = true
	w.count[side+" "+string(r)]++
}

func (w *reasons) mismatch(err error) {
	if w.shapes == nil {
		w.shapes = err
	}
}

func (w *reasons) late(by time.Duration) {
	if w.soon == 0 || by < w.soon {
		w.soon = by
	}
	w.add("pair", ReasonDeadline)
}

// verdicts, the most hopeful first: the first that somebody was refused for is
// the refusal, for with that one mended the request could be placed.
var verdicts = []struct {
	reason Reason
	code   handoff.Code
	after  time.Duration
}{
	{ReasonDeadline, handoff.CodeCapacity, RetryAfterMin},
	{ReasonBlocks, handoff.CodeCapacity, RetryAfterMin},
	{ReasonNotRebuilt, handoff.CodeUnavailable, RetryAfterMin},
	{ReasonLink, handoff.CodeUnavailable, RetryAfterBreaker},
	{ReasonBreaker, handoff.CodeUnavailable, RetryAfterBreaker},
	{ReasonCordoned, handoff.CodeUnavailable, RetryAfterMax},
	{ReasonExcluded, handoff.CodeUnavailable, RetryAfterMin},
	{ReasonContext, handoff.CodeTooLarge, 0},
	{ReasonPinned, handoff.CodeUnavailable, RetryAfterMax},
	{ReasonProtocol, handoff.CodeUnavailable, RetryAfterMax},
	{ReasonLayout, handoff.CodeUnavailable, RetryAfterMax},
	{ReasonRevision, handoff.CodeUnavailable, RetryAfterMax},
	{ReasonSame, handoff.CodeUnavailable, RetryAfterMax},
	{ReasonModel, handoff.CodeUnavailable, RetryAfterMax},
	{ReasonRole, handoff.CodeUnavailable, RetryAfterMax},
}

// refusal names the reason of the side that nobody could take: mending the
// other would not help.
func (w *reasons) refusal() *Refusal {
	side := sideP.name
	switch {
	case !w.served[sideD.name]:
		side = sideD.name
	case w.served[sideP.name]:
		side = "pair"
	}
	out := &Refusal{Code: handoff.CodeUnavailable, Reason: ReasonNoPair, Detail: w.detail(), RetryAfter: RetryAfterMax}
	for _, v := range verdicts {
		if w.sides[side][v.reason] {
			out.Code, out.Reason, out.RetryAfter = v.code, v.reason, v.after
			break
		}
	}
	if side == "pair" && out.Reason == ReasonLayout && w.shapes != nil {
		out.Detail += ": " + w.shapes.Error() // names the property that differs
	}
	if out.Reason == ReasonDeadline {
		out.RetryAfter = min(max(w.soon.Truncate(time.Second)+time.Second, RetryAfterMin), RetryAfterMax)
	}
	return out
}

func (w *reasons) detail() string {
	if len(w.count) == 0 {
		return "no engine is registered"
	}
	parts := make([]string, 0, len(w.count))
	for what, n := range w.count {
		parts = append(parts, fmt.Sprintf("%d %s", n, what))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
