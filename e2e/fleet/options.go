package fleet

import (
	"context"
	"fmt"
	"time"
)

// Options size a fleet. Zero fields take the defaults beside them.
type Options struct {
	Env []string // of every process, beside this one's own

	Prefill, Decode, Gateways int // 2 each
	// Model has the engines run the trained model; else their compute is
	// synthetic: state that is checked byte by byte, at a chosen pace.
	Model bool
	// PrefillRate is the prompt tokens a second of one synthetic engine; 0: as
	// fast as it is.
	PrefillRate float64
	Step        time.Duration // between two tokens of a synthetic engine; 0: none
	Chunk       int           // prompt tokens between two announcements; 0: the engine's default
	Blocks      int           // of each engine; 0: 4096
	Slots       int           // handoffs that hold memory of one engine at once; 0: 512
	Lease       time.Duration // 2 s: scaled down, so that lapses are seen
	Record      string        // of the gateways; empty: request
	EngineArgs  []string
	DecodeArgs  []string // of decode engines alone, behind EngineArgs
	// Engine starts an engine of another kind for a seat whose daemon runs, and
	// gives the command line of the surehand process that stands for it, less
	// what every engine is told. Nil: reference engines.
	Engine      func(context.Context, Seat) (args []string, err error)
	Serves      string // the name of such engines' model
	GatewayArgs []string
	NoTraces    bool // do not follow the daemons: for measurements
	Postgres    bool // histories in a PostgreSQL of the fleet's own, in place of SQLite files
	Shards      int  // history shards there; 0: the server's default
	Profiles    bool // Temporal and the gateways serve Go's profiles
	// Secure has gateways, engines and daemons listen off loopback, by mutual TLS.
	Secure bool
}

// Names of the models.
const (
	SyntheticModel = "surehand-synthetic"
	TrainedModel   = "surehand-reference"
)

// Seat is where an engine stands: its name, its role (prefill or decode) and
// the engine socket of the daemon beside it.
type Seat struct{ ID, Role, Daemon string }

func (o *Options) defaults() {
	for _, n := range []*int{&o.Prefill, &o.Decode, &o.Gateways} {
		if *n == 0 {
			*n = 2
		}
	}
	if o.Blocks == 0 {
		o.Blocks = 4096
	}
	if o.Slots == 0 {
		o.Slots = 512
	}
	if o.Lease == 0 {
		o.Lease = 2 * time.Second
	}
}

// ModelName is what clients ask for.
func (o Options) ModelName() string {
	if o.Engine != nil {
		return o.Serves
	}
	if o.Model {
		return TrainedModel
	}
	return SyntheticModel
}

func (o Options) engineArgs() []string {
	args := []string{"--blocks", fmt.Sprint(o.Blocks), "--slots", fmt.Sprint(o.Slots)}
	if o.Chunk > 0 {
		args = append(args, "--chunk-tokens", fmt.Sprint(o.Chunk))
	}
	if !o.Model {
		args = append(args, "--compute", "synthetic", "--prefill-tok-s", fmt.Sprint(o.PrefillRate),
			"--step-ms", fmt.Sprint(float64(o.Step)/float64(time.Millisecond)))
	}
	return append(args, o.EngineArgs...)
}

func (o Options) gatewayArgs() []string {
	args := []string{"--lease", o.Lease.String()}
	if o.Record != "" {
		args = append(args, "--record", o.Record)
	}
	return append(args, o.GatewayArgs...)
}
