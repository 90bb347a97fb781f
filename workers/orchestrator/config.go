package orchestrator

import (
	"crypto/tls"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/converter"

	"github.com/surehand/surehand/activities"
	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/activities/journal"
	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/activities/mover"
	"github.com/surehand/surehand/activities/operations"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// Config is what an orchestrator needs. Zero durations and counts mean the
// defaults beside them.
type Config struct {
	// Process names this process to workers and readers: the advertised address
	// of its gRPC side. Empty: a worker without a gateway, which reads nothing.
	Process string

	Temporal TemporalConfig
	Ledger   ledger.Ledger      // needed
	Engines  engine.Directory   // needed
	Movers   mover.Directory    // nil: transferd, over gRPC
	Bodies   activities.Bodies  // claim check for recovery; nil: memory only
	Daemons  *tls.Config        // for the control sides of daemons; nil: loopback only
	Remote   activities.Readers // how other processes' readers are asked; needed
	Silence  time.Duration      // of a daemon's host, before it counts as gone; 0: its client.Silence
	// Operations keep what operators said; nil: there are none.
	Operations *operations.Store
	Journal    journal.Journal // of delivered tokens; nil: none is kept

	Record       steps.Record  // RecordRequest
	Lease        time.Duration // handoff.LeaseDefault
	Deadline     time.Duration // 60 s: to the first token, unless the request says less
	Decode       time.Duration // 15 min: the stream after it
	Window       time.Duration // ledger.WindowDefault
	JournalTTL   time.Duration // journal.TTLDefault
	Comeback     time.Duration // 30 s: how long a journalled handoff waits for a client that left
	StartTimeout time.Duration // 1 s: L8
	Refresh      time.Duration // 250 ms: of the fleet's view
	LeaksEvery   time.Duration // 15 s: how often what is held for nobody is counted, for the metric
	InFlight     int           // 16384 handoffs at once (S17)
	Starts       int           // 16 starts under way at once; what is over waits before its head start
	SerialBelow  uint32        // handoff.OverlapTokens
	RequireLane  string        // the transport that every pull must use; empty: the best that there is
	MaxEpochs    handoff.Epoch // handoff.MaxEpochsBeforeFirstToken

	// CountTokens says how many tokens the engines make of a prompt.
	CountTokens func(prompt []byte) uint32

	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// TemporalConfig says where histories are kept.
type TemporalConfig struct {
	HostPort  string
	Namespace string // default
	TLS       *tls.Config
	APIKey    string
	TaskQueue string // steps.TaskQueueServe
	Version   Version
	// Converter writes and reads payloads; nil: Temporal's own.
	Converter converter.DataConverter
	// NoAttributes starts workflows without search attributes, for a namespace
	// whose owner does not register them.
	NoAttributes bool
}

func (c *Config) defaults() {
	orDefault := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	orDefault(&c.Lease, handoff.LeaseDefault)
	orDefault(&c.Deadline, 60*time.Second)
	orDefault(&c.Decode, 15*time.Minute)
	orDefault(&c.Window, ledger.WindowDefault)
	orDefault(&c.JournalTTL, journal.TTLDefault)
	orDefault(&c.Comeback, 30*time.Second)
	orDefault(&c.StartTimeout, time.Second)
	orDefault(&c.Refresh, 250*time.Millisecond)
	orDefault(&c.LeaksEvery, 15*time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Record == "" {
		c.Record = steps.RecordRequest
	}
	if c.Starts == 0 {
		c.Starts = 16
	}
	if c.InFlight == 0 {
		c.InFlight = 16384
	}
	if c.SerialBelow == 0 {
		c.SerialBelow = handoff.OverlapTokens
	}
	if c.Temporal.Namespace == "" {
		c.Temporal.Namespace = "default"
	}
	if c.Temporal.TaskQueue == "" {
		c.Temporal.TaskQueue = steps.TaskQueueServe
	}
}

func (c *Config) validate() error {
	switch {
	case c.Temporal.HostPort == "":
		return handoff.Errorf(handoff.CodeInvalid, "temporal address is empty")
	case c.Ledger == nil || c.Engines == nil || c.Remote == nil || c.CountTokens == nil:
		return handoff.Errorf(handoff.CodeInvalid, "ledger, engines, remote readers and token counter are needed")
	case c.Lease < handoff.LeaseMin || c.Lease > handoff.LeaseMax:
		return handoff.Errorf(handoff.CodeInvalid, "lease %s out of %s..%s", c.Lease, handoff.LeaseMin, handoff.LeaseMax)
	case c.Record != steps.RecordRequest && c.Record != steps.RecordHandoff:
		return handoff.Errorf(handoff.CodeInvalid, "record %q, want %q or %q", c.Record, steps.RecordRequest, steps.RecordHandoff)
	}
	return c.Temporal.Version.validate()
}
