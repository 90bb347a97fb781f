package refengine

import (
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/refengine/compute"
	"github.com/surehand/surehand/workers/refengine/schedule"
)

// Kinds of compute.
const (
	ComputeModel     = "model"
	ComputeSynthetic = "synthetic"
)

// Limits of one engine (S17).
const (
	maxMessageBytes  = 4 << 20 // of gRPC, either way; a prompt travels in one
	maxStreams       = 8192    // of one connection
	maxBlocks        = 1 << 22
	maxSlots         = 1 << 14
	maxMessages      = 4096 // of a chat
	maxStops         = 16
	maxStopBytes     = 256
	maxTemperature   = 10
	maxTombstones    = 1 << 16 // attempts remembered as over
	maxSealed        = 4096    // finished prefills that a repeat is told of
	sealedKept       = time.Minute
	maxAnswers       = 1024 // finished ones kept for a late reader
	AnswerKept       = 30 * time.Second
	retryFirst       = 10 * time.Millisecond // of a word to a transferd that is away
	retryLast        = 200 * time.Millisecond
	settleWait       = time.Second // for a transferd that was lost amid an operation
	defaultBlocks    = 1024
	defaultSlots     = 128
	defaultRunning   = 64
	defaultChunk     = 64
	defaultChunkFast = 512 // synthetic
	defaultGrace     = 5 * time.Second
)

// Config of one engine process.
type Config struct {
	ID              handoff.EngineID
	Role            engine.Role
	Listen          string // host:port of its gRPC; port 0 takes a free one; loopback unless TLS is set
	TLS             *tls.Config
	TransferdSocket string          // engine socket of the transferd beside it
	Control         string          // control address of that transferd, as others reach it
	Model           string          // the name that clients ask for; empty: surehand-reference or surehand-synthetic
	Compute         string          // model (default) or synthetic
	Work            compute.Compute // in place of Compute; stays the caller's, to close after the engine
	Synthetic       compute.SyntheticOptions
	Profile         schedule.Profile // paces the device; zero: as fast as it is
	Blocks          int              // of KV; 0: 1024
	Slots           int              // attempts that hold memory at once; 0: 128
	MaxRunning      int              // prefills, and decodes, that share the device at once; 0: 64
	ChunkTokens     int              // of one step of prefill; 0: 64, synthetic 512
	SerialBelow     int              // prompts of fewer tokens are announced once they are computed, not layer by layer
	Poison          bool             // scrub freed memory with NaN instead of zeros
	Lease           time.Duration    // when the caller names none; 0: handoff.LeaseDefault
	Grace           time.Duration    // for running attempts when the process is asked to stop; 0: 5 s
	Process         handoff.Incarnation
	Log             *slog.Logger
	// Ready is called once, when the engine is attached and serves. It must not block.
	Ready func(*Engine)
}

// check fills defaults and refuses what cannot work.
func (c *Config) check() error {
	if err := handoff.ValidateID("engine", string(c.ID)); err != nil {
		return err
	}
	if c.Role == 0 || c.Role > engine.RoleBoth {
		return handoff.Errorf(handoff.CodeInvalid, "role %d, want prefill, decode or both", c.Role)
	}
	if c.Work != nil && (c.Model == "" || c.Compute != "") {
		return handoff.Errorf(handoff.CodeInvalid, "a compute of its own needs the name of its model, and no other compute")
	}
	if c.Compute == "" {
		c.Compute = ComputeModel
	}
	chunk := defaultChunk
	name := "surehand-reference"
	if c.Compute == ComputeSynthetic {
		chunk, name = defaultChunkFast, "surehand-synthetic"
	}
	if c.Model == "" {
		c.Model = name
	}
	for _, d := range []struct {
		name      string
		field     *int
		otherwise int
		limit     int
	}{{"blocks", &c.Blocks, defaultBlocks, maxBlocks}, {"slots", &c.Slots, defaultSlots, maxSlots},
		{"running", &c.MaxRunning, defaultRunning, maxSlots}, {"chunk tokens", &c.ChunkTokens, chunk, handoff.MaxPromptTokens}} {
		if *d.field == 0 {
			*d.field = d.otherwise
		}
		if *d.field < 1 || *d.field > d.limit {
			return handoff.Errorf(handoff.CodeInvalid, "%s is %d, want 1..%d", d.name, *d.field, d.limit)
		}
	}
	if c.Lease == 0 {
		c.Lease = handoff.LeaseDefault
	}
	if c.Grace == 0 {
		c.Grace = defaultGrace
	}
	if c.Process == 0 {
		c.Process = handoff.Incarnation(time.Now().UnixNano()) // only grows on one host; tells two lives apart
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c.checkListen()
}

// checkListen refuses plaintext off loopback.
func (c *Config) checkListen() error {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return handoff.Errorf(handoff.CodeInvalid, "listen address: %s", err)
	}
	if ip := net.ParseIP(host); c.TLS == nil && (ip == nil || !ip.IsLoopback()) {
		return handoff.Errorf(handoff.CodeDenied, "listen address %s is not on loopback and TLS is not configured", c.Listen)
	}
	return nil
}

func newCompute(c Config) (compute.Compute, error) {
	if c.Work != nil {
		return c.Work, nil
	}
	switch c.Compute {
	case ComputeModel:
		return compute.NewTransformer()
	case ComputeSynthetic:
		return compute.NewSynthetic(c.Synthetic)
	}
	return nil, handoff.Errorf(handoff.CodeInvalid, "compute %q, want %s or %s", c.Compute, ComputeModel, ComputeSynthetic)
}
