package dev

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/surehand/surehand/workers/payload"
)

// Limits of one machine's worth.
const (
	MaxEngines     = 16                                      // of each role
	socketPathMost = 100                                     // of a folder with the longest name below in it
	longestSocket  = "/00000000-0000-0000-0000-000000000000" // one of vLLM's own
)

// Drain order: who takes requests first, who keeps the record last.
const (
	rankGateway = iota
	rankEngine
	rankTransferd
	rankStore
	rankTemporal
)

// GatewayGrace is how long streams may go on after a Ctrl-C.
const GatewayGrace = 10 * time.Second

// Names of children that there is one of.
const (
	nameGateway  = "gateway"
	nameStore    = "store"
	nameTemporal = "temporal"
)

// Config is what `surehand dev` is told.
type Config struct {
	Data           string
	Listen         string // OpenAI HTTP
	GRPC           string
	UI             string
	TemporalListen string
	Temporal       string // a real one at host:port; empty: the embedded one
	Redis          string // a real one's URL; empty: the embedded one
	Prefill        int
	Decode         int
	Engine         string   // kind of the engines; empty: our own
	Model          string   // of the engines, when they are not our own; empty: their default
	OwnArgs        []string // for every engine of our own
	EngineArgs     []string // for every engine of any kind
	GatewayArgs    []string
	Sealed         bool     // payloads are: the UI asks the gateway to open them
	GatewayEnv     []string // secrets: never on a command line
	Env            []string // of every process but Temporal and the store
	Self           string   // the surehand program
	Cache          string   // for built binaries
	Sources        string   // a folder in the checkout, or anywhere
	JSON           bool
}

func (c Config) check() error {
	if c.Data == "" || c.Self == "" || c.Cache == "" {
		return errors.New("dev needs a data directory, the program's own path and a cache")
	}
	for _, n := range []struct {
		name  string
		count int
	}{{"--prefill", c.Prefill}, {"--decode", c.Decode}} {
		if n.count < 1 || n.count > MaxEngines {
			return fmt.Errorf("%s %d: give 1 to %d engines", n.name, n.count, MaxEngines)
		}
	}
	if kinds[c.Engine] == nil {
		return fmt.Errorf("--engine %q is none of %s", c.Engine, Kinds())
	}
	return nil
}

// plan is the specs of all children, and where a person finds them.
type plan struct {
	specs                           []Spec
	http, grpc, ui, temporal, redis string
	ports                           *ports
	folder                          string // of sockets, when not below the data directory
	prompt                          string // to try
}

// programs are the paths of what is run.
type programs struct {
	self, transferd, temporal string
	engine                    engines
}

// newPlan picks ports and writes each child's command line. Close it.
func newPlan(c Config, with programs) (*plan, error) {
	p := &plan{temporal: c.Temporal, redis: c.Redis, prompt: with.engine.prompt, ports: newPorts()}
	if err := p.write(c, with, p.ports); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *plan) write(c Config, with programs, free *ports) (err error) {
	if p.http, err = free.wish("HTTP", c.Listen); err != nil {
		return err
	}
	if p.grpc, err = free.wish("gRPC", c.GRPC); err != nil {
		return err
	}
	var needs []string
	if c.Temporal == "" {
		needs = append(needs, nameTemporal)
		if err := p.addTemporal(c, with, free); err != nil {
			return err
		}
	}
	if c.Redis == "" {
		needs = append(needs, nameStore)
		if err := p.addStore(with, free); err != nil {
			return err
		}
	}
	if err := p.addEngines(c, with, free); err != nil {
		return err
	}
	args := append([]string{"serve", "--listen", p.http, "--grpc", p.grpc, "--temporal", p.temporal,
		"--redis", p.redis, "--grace", GatewayGrace.String(), "--notice", "0s"}, c.GatewayArgs...)
	if p.ui != "" {
		args = append(args, "--temporal-ui", "http://"+p.ui)
	}
	p.specs = append(p.specs, Spec{Name: nameGateway, Path: with.self, Args: args, Env: slices.Concat(c.GatewayEnv, c.Env), Needs: needs,
		Rank: rankGateway, Grace: GatewayGrace + 5*time.Second, Addresses: map[string]string{"http": p.http, "grpc": p.grpc}})
	return nil
}

func (p *plan) addTemporal(c Config, with programs, free *ports) (err error) {
	if p.temporal, err = free.wish("Temporal", c.TemporalListen); err != nil {
		return err
	}
	if p.ui, err = free.wish("Temporal UI", c.UI); err != nil {
		return err
	}
	args := []string{"--data", filepath.Join(c.Data, "temporal"), "--listen", p.temporal, "--ui", p.ui, "--die-with-parent"}
	if c.Sealed {
		args = append(args, "--ui-codec", "http://"+p.http+payload.Path)
	}
	p.specs = append(p.specs, Spec{Name: nameTemporal, Path: with.temporal, Rank: rankTemporal, Grace: 10 * time.Second,
		Args:      args,
		Addresses: map[string]string{"grpc": p.temporal, "ui": p.ui}})
	return nil
}

func (p *plan) addStore(with programs, free *ports) error {
	address, err := free.next(loopback)
	if err != nil {
		return err
	}
	p.redis = "redis://" + address
	p.specs = append(p.specs, Spec{Name: nameStore, Path: with.self, Args: []string{"store", "--listen", address},
		Rank: rankStore, Grace: 2 * time.Second, Addresses: map[string]string{"redis": address}})
	return nil
}

func (p *plan) addEngines(c Config, with programs, free *ports) error {
	folder, err := p.sockets(c.Data)
	if err != nil {
		return err
	}
	for _, group := range []struct {
		role, letter string
		count        int
	}{{"prefill", "p", c.Prefill}, {"decode", "d", c.Decode}} {
		for i := 1; i <= group.count; i++ {
			if err := p.addEngine(c, with, free, folder, group.role, fmt.Sprintf("%s%d", group.letter, i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// addEngine adds an engine and the transferd beside it.
func (p *plan) addEngine(c Config, with programs, free *ports, folder, role, id string) error {
	var at [5]string
	for i := range at {
		var err error
		if at[i], err = free.next(loopback); err != nil {
			return err
		}
	}
	control, peer, daemonMetrics, listen, metrics := at[0], at[1], at[2], at[3], at[4]
	socket := filepath.Join(folder, id+".sock")
	daemon := "transferd-" + id
	needs := []string{daemon}
	if c.Redis == "" {
		needs = append(needs, nameStore)
	}
	p.specs = append(p.specs, Spec{Name: daemon, Path: with.transferd, Rank: rankTransferd, Grace: 5 * time.Second, Env: c.Env,
		Args: []string{"--node", id, "--data", filepath.Join(c.Data, "transferd", id), "--engine-socket", socket,
			"--control", control, "--peer", peer, "--metrics", daemonMetrics, "--die-with-parent"},
		Addresses: map[string]string{"control": control, "peer": peer, "metrics": daemonMetrics, "socket": socket}})
	args := []string{"engine", "--transferd-socket", socket}
	if with.engine.server != nil {
		address, err := free.next(loopback)
		if err != nil {
			return err
		}
		server, front, err := with.engine.server(seat{id: id, role: role, listen: address, daemon: socket, front: filepath.Join(folder, id+"-front.sock")})
		if err != nil {
			return err
		}
		server.Needs, server.Env = []string{daemon}, slices.Concat(c.Env, server.Env)
		needs = append(needs, server.Name)
		p.specs, args = append(p.specs, server), append([]string{c.Engine}, front...)
	}
	args = append(args, "--role", role, "--id", id, "--listen", listen, "--transferd-control", control, "--redis", p.redis, "--metrics", metrics)
	p.specs = append(p.specs, Spec{Name: id, Path: with.engine.program, Needs: needs, Rank: rankEngine, Grace: 8 * time.Second, Env: c.Env,
		Args:      slices.Concat(args, with.engine.args, c.EngineArgs),
		Addresses: map[string]string{"grpc": listen, "metrics": metrics}})
	return nil
}

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// sockets gives a folder whose paths fit into a socket's address.
func (p *plan) sockets(data string) (string, error) {
	folder := filepath.Join(data, "run")
	if len(folder)+len(longestSocket) > socketPathMost {
		var err error
		if folder, err = os.MkdirTemp("", "surehand-"); err != nil {
			return "", err
		}
		p.folder = folder
		return folder, nil
	}
	return folder, os.MkdirAll(folder, 0o700)
}

// curl is a request to paste.
func (p *plan) curl(model, prompt string) string {
	return strings.Join([]string{
		"curl -N http://" + p.http + `/v1/completions -H 'Content-Type: application/json' -d '{`,
		`  "model": "` + model + `", "prompt": "` + prompt + `",`,
		`  "max_tokens": 200, "temperature": 0.5, "stream": true}'`,
	}, "\n")
}
