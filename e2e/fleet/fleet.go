package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/activities/engine/reference"
	"github.com/surehand/surehand/activities/ledger/redisledger"
	daemon "github.com/surehand/surehand/transferd/client"
	"github.com/surehand/surehand/transferd/identity"
)

// Names of the processes that there is one of.
const (
	Temporal = "temporal"
	Redis    = "redis"
	Postgres = "postgres"
)

// Fleet is everything that runs. Fields are set by Start and only read after.
type Fleet struct {
	Options  Options
	Dir      string
	HTTP     map[string]string // of each gateway
	GRPC     map[string]string
	Pprof    map[string]string // of each process that serves profiles
	RedisURL string

	TemporalAddress, TemporalMetrics string

	programs Programs
	spawn    *spawner
	order    []*Process // as started
	byName   map[string]*Process
	seats    []seat
	store    *redis.Client
	ledger   *redisledger.Ledger
	temporal client.Client
	engines  *reference.Connections
	controls map[string]*daemon.Control // by node
	traces   *traces
	database *database // nil: histories are in SQLite files
	secure   *secure   // nil: everything is on loopback
}

// Start runs a fleet in dir and waits until it serves. The caller stops it,
// also when Start fails.
func Start(ctx context.Context, p Programs, dir string, o Options) (f *Fleet, err error) {
	o.defaults()
	f = &Fleet{Options: o, Dir: dir, programs: p, spawn: newSpawner(), HTTP: map[string]string{}, GRPC: map[string]string{}, Pprof: map[string]string{},
		byName: map[string]*Process{}, engines: reference.NewConnections(nil, 0), controls: map[string]*daemon.Control{}}
	if len(dir) > 80 { // a socket's path has to fit into 108 bytes
		return f, fmt.Errorf("directory %q is too deep for sockets", dir)
	}
	if o.Secure {
		if f.secure, err = newSecure(dir); err != nil {
			return f, err
		}
		f.engines = reference.NewConnections(f.secure.own, 0)
	}
	for _, step := range []func(context.Context) error{f.startStores, f.startEngines, f.startGateways, f.connect} {
		if err := step(ctx); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (f *Fleet) add(s spec) *Process {
	s.env = slices.Concat(f.Options.Env, s.env)
	p := &Process{spec: s, dir: f.Dir, spawn: f.spawn}
	f.order = append(f.order, p)
	f.byName[s.name] = p
	return p
}

// startAll starts processes beside each other.
func startAll(ctx context.Context, ps []*Process) error {
	failed := make([]error, len(ps))
	var all sync.WaitGroup
	for i, p := range ps {
		all.Go(func() { failed[i] = p.Start(ctx) })
	}
	all.Wait()
	return errors.Join(failed...)
}

func (f *Fleet) startStores(ctx context.Context) error {
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return err
	}
	if err := f.startPostgres(ctx); err != nil {
		return err
	}
	t, err := f.temporalSpec()
	if err != nil {
		return err
	}
	r, err := f.redisSpec()
	if err != nil {
		return err
	}
	return startAll(ctx, []*Process{f.add(t), f.add(r)})
}

func (f *Fleet) startEngines(ctx context.Context) error {
	for _, group := range []struct {
		role, letter string
		count        int
	}{{"prefill", "p", f.Options.Prefill}, {"decode", "d", f.Options.Decode}} {
		for i := range group.count {
			s, err := f.newSeat(group.role, fmt.Sprintf("%s%d", group.letter, i+1))
			if err != nil {
				return err
			}
			f.seats = append(f.seats, s)
		}
	}
	var daemons, engines []*Process
	for _, s := range f.seats {
		d, err := f.daemonSpec(s)
		if err != nil {
			return err
		}
		daemons = append(daemons, f.add(d))
	}
	if err := startAll(ctx, daemons); err != nil {
		return err
	}
	for _, s := range f.seats {
		e, err := f.engineSpec(ctx, s)
		if err != nil {
			return err
		}
		engines = append(engines, f.add(e))
	}
	return startAll(ctx, engines)
}

func (f *Fleet) startGateways(ctx context.Context) error {
	var all []*Process
	for i := range f.Options.Gateways {
		s, err := f.gatewaySpec(fmt.Sprintf("g%d", i+1))
		if err != nil {
			return err
		}
		all = append(all, f.add(s))
	}
	return startAll(ctx, all)
}

// connect opens what a fleet is looked at through.
func (f *Fleet) connect(ctx context.Context) (err error) {
	if f.ledger, err = redisledger.Open(redisledger.Options{URL: f.RedisURL}); err != nil {
		return err
	}
	if f.temporal, err = client.DialContext(ctx, client.Options{HostPort: f.TemporalAddress, Logger: quiet{}}); err != nil {
		return err
	}
	for _, s := range f.seats {
		if f.controls[s.node], err = f.control(s); err != nil {
			return err
		}
	}
	if !f.Options.NoTraces {
		f.traces = follow(f.controls)
	}
	return nil
}

func (f *Fleet) control(s seat) (*daemon.Control, error) {
	if f.secure == nil {
		return daemon.Dial(s.control)
	}
	own, err := f.secure.identity(identity.Orchestrator, "fleet")
	if err != nil {
		return nil, err
	}
	source, err := identity.Open(own)
	if err != nil {
		return nil, err
	}
	c := source.TLS(identity.Orchestrator)
	c.ServerName = s.node
	return daemon.Dial(s.control, daemon.WithTLS(c))
}

// Process by name: temporal, redis, g1…, p1…, d1… and the daemons tp1…, td1….
// An unknown name is a mistake of the caller's.
func (f *Fleet) Process(name string) *Process {
	p := f.byName[name]
	if p == nil {
		panic("no process is called " + name)
	}
	return p
}

// Processes are all of them, as started.
func (f *Fleet) Processes() []*Process { return f.order }

// Scrapes are the metrics addresses of a kind of process: gateway, engine or transferd.
func (f *Fleet) Scrapes(kind string) []string {
	var out []string
	switch kind {
	case "gateway":
		for _, address := range f.HTTP {
			out = append(out, address)
		}
	case "engine":
		for _, s := range f.seats {
			out = append(out, s.metrics)
		}
	case "transferd":
		for _, s := range f.seats {
			out = append(out, s.daemonMetrics)
		}
	}
	slices.Sort(out)
	return out
}

// Engine speaks to an engine directly.
func (f *Fleet) Engine(id string) (engine.Engine, error) {
	for _, s := range f.seats {
		if s.id == id {
			return f.engines.Engine(s.engine)
		}
	}
	return nil, fmt.Errorf("no engine is called %s", id)
}

// Daemon speaks to the daemon of a node.
func (f *Fleet) Daemon(node string) *daemon.Control { return f.controls[node] }

// Heal lets every process go on, and starts again those that ended.
func (f *Fleet) Heal(ctx context.Context) error {
	var failed []error
	for _, p := range f.order { // stores first, gateways last
		failed = append(failed, p.Resume())
		if !p.Alive() {
			failed = append(failed, p.Start(ctx))
		}
	}
	return errors.Join(errors.Join(failed...), f.Answers(ctx))
}

// Answers waits until every process that can be asked says that it serves.
func (f *Fleet) Answers(ctx context.Context) error {
	var failed []error
	for _, p := range f.order {
		if p.answers != nil {
			failed = append(failed, f.answersAgain(ctx, p))
		}
	}
	return errors.Join(failed...)
}

// Operators connects to what a gateway offers operators, without credentials.
func (f *Fleet) Operators(gateway string) (*grpc.ClientConn, error) {
	return grpc.NewClient(f.GRPC[gateway], grpc.WithTransportCredentials(insecure.NewCredentials()))
}

func (f *Fleet) answersAgain(ctx context.Context, p *Process) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	return p.serves(ctx, p.now())
}

// Stop ends every process, gateways first. What does not end by itself is
// killed, and told.
func (f *Fleet) Stop() error {
	if f.traces != nil {
		f.traces.stop()
	}
	var failed []error
	for _, c := range f.controls {
		failed = append(failed, c.Close())
	}
	failed = append(failed, f.engines.Close())
	if f.temporal != nil {
		f.temporal.Close()
	}
	if f.ledger != nil {
		failed = append(failed, f.ledger.Close())
	}
	if f.store != nil {
		failed = append(failed, f.store.Close())
	}
	began := time.Now()
	for i := len(f.order) - 1; i >= 0; i-- {
		p := f.order[i]
		if time.Since(began) > stopWithin {
			failed = append(failed, p.Kill())
			continue
		}
		failed = append(failed, p.Stop())
	}
	f.spawn.close()
	failed = append(failed, f.database.remove())
	return errors.Join(failed...)
}
