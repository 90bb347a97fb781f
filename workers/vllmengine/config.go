package vllmengine

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/url"
	"time"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/contracts/handoff"
)

// Limits of one front (S17).
const (
	maxMessageBytes = 4 << 20 // of gRPC, either way; a prompt travels in one
	maxStreams      = 8192    // of one connection
	maxAttempts     = 4096    // that run or hold memory, on each side
	maxTombstones   = 1 << 16 // attempts remembered as over
	maxSealed       = 4096    // finished prefills that a repeat is told of
	maxAnswers      = 1024    // finished ones kept for a late reader
	maxStops        = 16
	maxStopBytes    = 256
	maxTemperature  = 2         // vLLM's own
	maxEventBytes   = 1 << 20   // one line of vLLM's stream
	maxRefusalBytes = 4 << 10   // kept of a refusal
	maxOrders       = 1 << 16   // words that wait for a connector that does not read
	maxSeed         = 1<<63 - 1 // vLLM's are signed

	// AnswerKept is how long a finished answer waits for a late reader.
	AnswerKept = 30 * time.Second
	// DefaultQueueWait is how long a reservation may wait for vLLM's blocks.
	DefaultQueueWait = 2 * time.Second
	defaultGrace     = 5 * time.Second
	defaultNotice    = 5 * time.Second // for the connector's word on what vLLM has answered already
)

// Config of one front.
type Config struct {
	ID        handoff.EngineID
	Role      engine.Role
	Listen    string // host:port of its gRPC; loopback unless TLS is set
	TLS       *tls.Config
	URL       string // of the vLLM server
	APIKey    string // of it
	Plaintext bool   // permits http to a vLLM on another host
	Socket    string // at which the connector calls
	Control   string // control address of the transferd beside the engine, as others reach it
	Model     string // the name that clients ask for; empty: the one that vLLM serves
	QueueWait time.Duration
	Lease     time.Duration // when the caller names none; 0: handoff.LeaseDefault
	Grace     time.Duration // for running attempts when the process is asked to stop; 0: 5 s
	Process   handoff.Incarnation
	Log       *slog.Logger
	notice    time.Duration // how long the connector's word may come after vLLM's
	// Ready is called once, when the front serves. It must not block.
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
	for _, d := range []struct {
		field     *time.Duration
		otherwise time.Duration
	}{{&c.QueueWait, DefaultQueueWait}, {&c.Lease, handoff.LeaseDefault}, {&c.Grace, defaultGrace}, {&c.notice, defaultNotice}} {
		if *d.field == 0 {
			*d.field = d.otherwise
		}
	}
	if c.Process == 0 {
		c.Process = handoff.Incarnation(time.Now().UnixNano()) // only grows on one host; tells two lives apart
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c.checkAddresses()
}

// checkAddresses refuses plaintext off loopback.
func (c *Config) checkAddresses() error {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return handoff.Errorf(handoff.CodeInvalid, "listen address: %s", err)
	}
	if c.TLS == nil && !isLoopback(host) {
		return handoff.Errorf(handoff.CodeDenied, "listen address %s is not on loopback and TLS is not configured", c.Listen)
	}
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" {
		return handoff.Errorf(handoff.CodeInvalid, "vLLM's address is no http(s)://host:port")
	}
	if u.Scheme == "http" && !c.Plaintext && !isLoopback(u.Hostname()) {
		return handoff.Errorf(handoff.CodeDenied, "vLLM at %s is not on loopback: use https, or permit plaintext", u.Host)
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
