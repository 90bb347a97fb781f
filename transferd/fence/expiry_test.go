package fence

import (
	"context"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
)

// A capability ends by TP's own clock, however often its grant was renewed.
func TestAnExpiredCapabilityIsRefused(t *testing.T) {
	c := core(t, 1)
	e := newBench(t).engine("e")
	attach(t, c, e)
	p := plan("h", 1, 1)
	g, err := c.OpenSource(e, SourceSpec{Plan: p, Shape: shape, Offsets: offsets(), Lease: handoff.LeaseMax})
	check(t, err)
	passes(c, CapabilityLife-time.Minute)
	for range 3 {
		_, err := c.Renew(nil, []handoff.Attempt{p.Attempt}, handoff.LeaseMax, 0)
		check(t, err)
	}
	passes(c, time.Minute)
	_, err = c.Admit(context.Background(), p.Attempt, g.Capability, Holder{"n1", 1})
	wantCode(t, err, handoff.CodeDenied)
}
