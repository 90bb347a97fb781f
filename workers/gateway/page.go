package gateway

import (
	"context"
	"net/http"

	operatev1 "github.com/surehand/surehand/contracts/gen/surehand/operate/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/access"
	"github.com/surehand/surehand/workers/orchestrator"
	"github.com/surehand/surehand/workers/ui"
)

// page is the web page at /ui/: the fleet for operators, handoffs for their
// tenant.
func (g *Gateway) page() ui.UI {
	return ui.UI{
		Source: pageSource{g.Front, g}, Temporal: g.Temporal,
		Tenant: func(r *http.Request) (string, error) {
			return access.From(r.Context()).For(r.Header.Get(headerTenant), DefaultTenant)
		},
		Operator: func(r *http.Request) error {
			if by := access.From(r.Context()); !by.May(access.RoleOperator) {
				return handoff.Errorf(handoff.CodeDenied, "the fleet is not for a %s", by.Role)
			}
			return nil
		},
		Refuse: func(w http.ResponseWriter, err error) { asRefusal(err).write(w, "") },
	}
}

type pageSource struct {
	orchestrator.Front
	g *Gateway
}

func (s pageSource) EngineStates(ctx context.Context) ([]*operatev1.EngineState, error) {
	if s.g.Operate == nil {
		return nil, handoff.Errorf(handoff.CodeUnavailable, "this gateway does not operate a fleet")
	}
	return s.g.Operate.EngineStates(ctx)
}

func (s pageSource) Admission() *operatev1.Admission { return s.g.admission() }

// admission is what waits at this gateway, and the streams that it follows.
func (g *Gateway) admission() *operatev1.Admission {
	a := &operatev1.Admission{}
	if g.Operate != nil {
		a = g.Operate.Admission()
	}
	a.Streams, a.StreamsMost = uint32(max(0, g.streams.Load())), MaxStreams
	return a
}
