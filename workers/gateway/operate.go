package gateway

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/surehand/surehand/activities/operations"
	operatev1 "github.com/surehand/surehand/contracts/gen/surehand/operate/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
	"github.com/surehand/surehand/workers/access"
	"github.com/surehand/surehand/workers/orchestrator"
)

// Operate is what the orchestrator does for operators. Each act is audited.
type Operate interface {
	CancelFor(ctx context.Context, a orchestrator.Act) (status string, err error)
	Steer(ctx context.Context, a orchestrator.Act, now bool) (steps.Steered, error)
	ReleaseFor(ctx context.Context, a orchestrator.Act) (released []string, err error)
	Cordon(ctx context.Context, by, engine, reason string, off bool) error
	EngineStates(ctx context.Context) ([]*operatev1.EngineState, error)
	Admission() *operatev1.Admission
	Owes(ctx context.Context, engine string) (*operatev1.OwesAnswer, error)
	Leaks(ctx context.Context, all bool) (*operatev1.LeaksAnswer, error)
	Audit(ctx context.Context, most int) ([]operations.Entry, error)
	Versions(ctx context.Context) (*operatev1.VersionsAnswer, error)
	Deploy(ctx context.Context, by, build, reason string) error
}

// drainEvery is how often a drain looks at what is still owed.
const drainEvery = 500 * time.Millisecond

// operatorServer is for operators: see rolesOf.
type operatorServer struct {
	operatev1.UnimplementedOperatorServer
	g *Gateway
}

// act names who asks; the names of a handoff are checked here, engines later.
func act(ctx context.Context, tenant, id, reason string) (orchestrator.Act, error) {
	a := orchestrator.Act{By: access.From(ctx).Name, Tenant: tenant, ID: id, Reason: reason}
	if a.Tenant == "" {
		a.Tenant = DefaultTenant
	}
	if err := handoff.ValidateID("tenant", a.Tenant); err != nil {
		return a, err
	}
	return a, handoff.ValidateID("handoff", id)
}

func (s *operatorServer) Cancel(ctx context.Context, r *operatev1.ActRequest) (*operatev1.ActAnswer, error) {
	a, err := act(ctx, r.GetTenant(), r.GetHandoff(), r.GetReason())
	if err != nil {
		return nil, err
	}
	status, err := s.g.Operate.CancelFor(ctx, a)
	return &operatev1.ActAnswer{Status: status}, err
}

func (s *operatorServer) Replace(ctx context.Context, r *operatev1.SteerRequest) (*operatev1.ActAnswer, error) {
	return s.steer(ctx, r, true)
}

func (s *operatorServer) Pin(ctx context.Context, r *operatev1.SteerRequest) (*operatev1.ActAnswer, error) {
	return s.steer(ctx, r, false)
}

func (s *operatorServer) steer(ctx context.Context, r *operatev1.SteerRequest, now bool) (*operatev1.ActAnswer, error) {
	a, err := act(ctx, r.GetTenant(), r.GetHandoff(), r.GetReason())
	if err != nil {
		return nil, err
	}
	a.Prefill, a.Decode = r.GetPrefill(), r.GetDecode()
	got, err := s.g.Operate.Steer(ctx, a, now)
	return &operatev1.ActAnswer{Status: string(got.Phase), Epoch: uint32(got.Epoch)}, err
}

func (s *operatorServer) Release(ctx context.Context, r *operatev1.ActRequest) (*operatev1.ActAnswer, error) {
	a, err := act(ctx, r.GetTenant(), r.GetHandoff(), r.GetReason())
	if err != nil {
		return nil, err
	}
	released, err := s.g.Operate.ReleaseFor(ctx, a)
	return &operatev1.ActAnswer{Status: "released", Released: released}, err
}

func (s *operatorServer) Engines(ctx context.Context, _ *operatev1.EnginesRequest) (*operatev1.EnginesAnswer, error) {
	engines, err := s.g.Operate.EngineStates(ctx)
	return &operatev1.EnginesAnswer{Engines: engines, Admission: s.g.admission()}, err
}

func (s *operatorServer) Cordon(ctx context.Context, r *operatev1.CordonRequest) (*operatev1.CordonAnswer, error) {
	if err := s.registered(ctx, r.GetEngine()); err != nil && !r.GetOff() {
		return nil, err
	}
	if err := s.g.Operate.Cordon(ctx, access.From(ctx).Name, r.GetEngine(), r.GetReason(), r.GetOff()); err != nil {
		return nil, err
	}
	engines, err := s.g.Operate.EngineStates(ctx)
	for _, e := range engines {
		if e.GetEngine() == r.GetEngine() {
			return &operatev1.CordonAnswer{Engine: e}, nil
		}
	}
	return &operatev1.CordonAnswer{}, err
}

// registered refuses an engine that is not there: most are typing errors.
func (s *operatorServer) registered(ctx context.Context, engine string) error {
	engines, err := s.g.Operate.EngineStates(ctx)
	if err != nil {
		return err
	}
	for _, e := range engines {
		if e.GetEngine() == engine {
			return nil
		}
	}
	return refuse("engine", "no engine %q is registered", clip(engine))
}

// Drain ends when nothing is owed any more; the cordon stays.
func (s *operatorServer) Drain(r *operatev1.CordonRequest, stream grpc.ServerStreamingServer[operatev1.OwesAnswer]) error {
	ctx, cancel := s.g.live(stream.Context())
	defer cancel()
	if _, err := s.Cordon(ctx, &operatev1.CordonRequest{Engine: r.GetEngine(), Reason: r.GetReason()}); err != nil {
		return err
	}
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	for {
		owed, err := s.g.Operate.Owes(ctx, r.GetEngine())
		if err != nil {
			return err
		}
		if err := stream.Send(owed); err != nil {
			return err
		}
		if len(owed.GetHeld()) == 0 && owed.GetUnknown() == "" {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *operatorServer) Owes(ctx context.Context, r *operatev1.OwesRequest) (*operatev1.OwesAnswer, error) {
	if err := handoff.ValidateID("engine", r.GetEngine()); err != nil {
		return nil, err
	}
	return s.g.Operate.Owes(ctx, r.GetEngine())
}

func (s *operatorServer) Leaks(ctx context.Context, r *operatev1.LeaksRequest) (*operatev1.LeaksAnswer, error) {
	return s.g.Operate.Leaks(ctx, r.GetAll())
}

func (s *operatorServer) Versions(ctx context.Context, _ *operatev1.VersionsRequest) (*operatev1.VersionsAnswer, error) {
	return s.g.Operate.Versions(ctx)
}

func (s *operatorServer) Deploy(ctx context.Context, r *operatev1.DeployRequest) (*operatev1.VersionsAnswer, error) {
	if err := s.g.Operate.Deploy(ctx, access.From(ctx).Name, r.GetBuild(), r.GetReason()); err != nil {
		return nil, err
	}
	return s.g.Operate.Versions(ctx)
}

func (s *operatorServer) Audit(ctx context.Context, r *operatev1.AuditRequest) (*operatev1.AuditAnswer, error) {
	most := int(r.GetLimit())
	if most == 0 {
		most = DefaultListed
	}
	if most > MaxListed {
		return nil, refuse("limit", "at most %d entries are listed", MaxListed)
	}
	entries, err := s.g.Operate.Audit(ctx, most)
	out := &operatev1.AuditAnswer{}
	for _, e := range entries {
		out.Entries = append(out.Entries, &operatev1.AuditEntry{AtUnixMs: e.At.UnixMilli(), By: e.By, Action: e.Action, On: e.On, Reason: e.Reason})
	}
	return out, err
}
