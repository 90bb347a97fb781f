package fleet

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"

	"github.com/redis/go-redis/v9"

	"github.com/surehand/surehand/transferd/identity"
)

// addresses gives so many.
func addresses(n int) ([]string, error) {
	out := make([]string, n)
	for i := range out {
		var err error
		if out[i], err = address(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Addresses of one engine and the daemon beside it.
type seat struct {
	id, role                                   string
	engine, metrics                            string
	control, peer, daemonMetrics, socket, node string
}

func (f *Fleet) temporalSpec() (spec, error) {
	at, err := addresses(2)
	if err != nil {
		return spec{}, err
	}
	f.TemporalAddress, f.TemporalMetrics = at[0], at[1]
	profiles, err := f.profiles(Temporal)
	args := append([]string{"--listen", at[0], "--ui", "", "--metrics", at[1]}, profiles...)
	if f.database == nil {
		args = append(args, "--data", filepath.Join(f.Dir, "temporal"))
	} else {
		args = append(args, "--store", f.database.url, "--shards", fmt.Sprint(f.Options.Shards))
	}
	return spec{name: Temporal, path: f.programs.Temporal, says: true, listens: at[:1], args: args}, err
}

// profiles is the flag that has a process serve them.
func (f *Fleet) profiles(name string) ([]string, error) {
	if !f.Options.Profiles {
		return nil, nil
	}
	at, err := address()
	if err != nil {
		return nil, err
	}
	f.Pprof[name] = at
	return []string{"--pprof", at}, nil
}

func (f *Fleet) redisSpec() (spec, error) {
	at, err := address()
	if err != nil {
		return spec{}, err
	}
	f.RedisURL = "redis://" + at
	f.store = redis.NewClient(&redis.Options{Addr: at, Protocol: 2, MaxRetries: -1, DisableIdentity: true})
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		return spec{}, err
	}
	s := spec{name: Redis, path: f.programs.Redis, listens: []string{at}, answers: func(ctx context.Context) error { return f.store.Ping(ctx).Err() },
		args: []string{"--bind", host, "--port", port, "--save", "", "--appendonly", "no", "--dir", f.Dir, "--daemonize", "no"}}
	if s.path == "" {
		s.path, s.says, s.args = f.programs.Surehand, true, []string{"store", "--listen", at}
	}
	return s, nil
}

func (f *Fleet) newSeat(role, id string) (seat, error) {
	at, err := addresses(5)
	if err != nil {
		return seat{}, err
	}
	for _, i := range []int{0, 2, 3} { // those that other hosts reach
		if at[i], err = f.at(); err != nil {
			return seat{}, err
		}
	}
	return seat{id: id, role: role, engine: at[0], metrics: at[1], control: at[2], peer: at[3], daemonMetrics: at[4],
		node: "t" + id, socket: filepath.Join(f.Dir, id+".sock")}, nil
}

func (f *Fleet) daemonSpec(s seat) (spec, error) {
	tls, err := f.secured(identity.Daemon, s.node, daemonTLS)
	return spec{name: s.node, path: f.programs.Transferd, says: true, listens: []string{s.control, s.peer}, args: append([]string{"--node", s.node,
		"--data", filepath.Join(f.Dir, "transferd-"+s.id), "--engine-socket", s.socket, "--control", s.control, "--peer", s.peer,
		"--metrics", s.daemonMetrics, "--lease", f.Options.Lease.String()}, tls...)}, err
}

func (f *Fleet) engineSpec(ctx context.Context, s seat) (spec, error) {
	args, path := []string{"engine", "--transferd-socket", s.socket}, f.programs.Surehand
	if f.Options.Engine != nil {
		path = cmp.Or(f.programs.Engine, path)
		var err error
		if args, err = f.Options.Engine(ctx, Seat{s.id, s.role, s.socket}); err != nil {
			return spec{}, err
		}
	} else {
		args = append(args, f.Options.engineArgs()...)
		if s.role == "decode" {
			args = append(args, f.Options.DecodeArgs...)
		}
	}
	tls, err := f.secured(identity.Orchestrator, s.id, engineTLS)
	args = append(args, tls...)
	return spec{name: s.id, path: path, says: true, listens: []string{s.engine}, args: append(args, "--role", s.role, "--id", s.id,
		"--listen", s.engine, "--transferd-control", s.control, "--redis", f.RedisURL, "--metrics", s.metrics)}, err
}

func (f *Fleet) gatewaySpec(id string) (spec, error) {
	at := make([]string, 2)
	for i := range at {
		var err error
		if at[i], err = f.at(); err != nil {
			return spec{}, err
		}
	}
	f.HTTP[id], f.GRPC[id] = at[0], at[1]
	profiles, err := f.profiles(id)
	if err != nil {
		return spec{}, err
	}
	tls, err := f.secured(identity.Orchestrator, id, gatewayTLS)
	profiles = append(profiles, tls...)
	args := append([]string{"serve", "--listen", at[0], "--grpc", at[1], "--temporal", f.TemporalAddress, "--redis", f.RedisURL}, profiles...)
	return spec{name: id, path: f.programs.Surehand, says: true, listens: at, answers: f.ready(at[0]), args: append(args, f.Options.gatewayArgs()...)}, err
}

// once speaks HTTP without keeping connections.
var once = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// ready asks a gateway whether it could serve a request now.
func (f *Fleet) ready(address string) func(context.Context) error {
	if f.secure == nil {
		return ready(address)
	}
	return func(ctx context.Context) error { return answers200(ctx, f.secure.web, "https://"+address+"/readyz") }
}

func ready(address string) func(context.Context) error {
	return func(ctx context.Context) error { return answers200(ctx, once, "http://"+address+"/readyz") }
}

func asked200(by *http.Client, r *http.Request) error {
	resp, err := by.Do(r)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %d", r.URL.Path, resp.StatusCode)
	}
	return nil
}
