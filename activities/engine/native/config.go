package native

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/surehand/surehand/activities/engine/vllm"
	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
)

// Limits and defaults.
const (
	// MaxEngines bounds a static fleet.
	MaxEngines = 256
	// MaxAttempts bounds what is under way.
	MaxAttempts = 16384
	// DefaultRefresh is how often each engine's metrics are read.
	DefaultRefresh = 500 * time.Millisecond
	// DefaultWaiting is how many strangers' requests may wait at D before it
	// counts as full.
	DefaultWaiting = 4
	// DefaultWait is how long a request may wait for room at a D.
	DefaultWait = 30 * time.Second
	// DefaultBootstrapPort is that of vLLM's Mooncake bootstrap server.
	DefaultBootstrapPort = 8998
	// DefaultGrowth is for how many tokens room is promised when the client does
	// not say how many it wants.
	DefaultGrowth = 256

	tick          = 100 * time.Millisecond
	askTimeout    = 2 * time.Second        // of one scrape or look at the facts
	fetchTimeout  = 10 * time.Second       // of one that is dropped: D may have to queue it
	settleFor     = 250 * time.Millisecond // so that P's counters have told what happened before
	missesToDown  = 3                      // scrapes without an answer, other than a refused connection
	learnedFor    = 30 * time.Second       // how long a D's refusal for want of room is believed
	releaseEvery  = 300 * time.Millisecond // doubled with each try
	releaseMost   = time.Second
	dispatchGrace = 500 * time.Millisecond // after which D has surely taken what it was sent
	keepRecord    = 20 * time.Minute       // of a closed attempt: longer than a message is under way
	unopenedKept  = time.Minute
	unknownBlocks = 4096
	unknownLength = 131072
)

// Config names the engines and how they are spoken to.
type Config struct {
	Prefill, Decode []string // URLs
	Style           vllm.Style
	// Lease is what P's lease is configured to; 0: the engine's default.
	Lease         time.Duration
	BootstrapPort int // of P's Mooncake
	APIKey        string
	TLS           *tls.Config
	Plaintext     bool // also off loopback
	// Recompute lets D compute the prompt itself when P gives no transfer
	// parameters; it is counted. Otherwise that is a refusal.
	Recompute bool
	// Concurrency is how many requests one D runs; 0: not known.
	Concurrency int
	Wait        time.Duration // for room at a D, before anything is planned; negative: none
	Waiting     int           // DefaultWaiting
	Refresh     time.Duration
	Silence     time.Duration   // of an engine's host, before it counts as gone; 0: client.Silence
	Registry    ledger.Registry // where engines that serve are announced
	Log         *slog.Logger
	Metrics     prometheus.Registerer
}

func (c *Config) defaults() {
	if c.Style == "" {
		c.Style = vllm.NIXLPull
	}
	if c.Waiting == 0 {
		c.Waiting = DefaultWaiting
	}
	if c.Wait == 0 {
		c.Wait = DefaultWait
	}
	if c.Refresh == 0 {
		c.Refresh = DefaultRefresh
	}
	if c.BootstrapPort == 0 {
		c.BootstrapPort = DefaultBootstrapPort
	}
}

// capabilities are the table's, with the lease as it is configured.
func (c *Config) capabilities() (vllm.Capabilities, error) {
	caps, err := vllm.Of(c.Style)
	if c.Lease > 0 {
		caps.Lease = c.Lease
	}
	return caps, err
}

func (c *Config) validate() error {
	switch n := len(c.Prefill) + len(c.Decode); {
	case len(c.Prefill) == 0 || len(c.Decode) == 0:
		return handoff.Errorf(handoff.CodeInvalid, "name at least one prefill and one decode engine")
	case n > MaxEngines:
		return handoff.Errorf(handoff.CodeTooLarge, "%d engines, limit %d", n, MaxEngines)
	case c.Registry == nil || c.Log == nil:
		return handoff.Errorf(handoff.CodeInvalid, "registry and log are needed")
	case c.Concurrency < 0 || c.Waiting < 0 || c.Lease < 0:
		return handoff.Errorf(handoff.CodeInvalid, "a negative limit")
	}
	return nil
}

func (c *Config) server(address string) vllm.Config {
	v := vllm.Config{URL: address, Style: c.Style, APIKey: c.APIKey, TLS: c.TLS, Plaintext: c.Plaintext, Silence: c.Silence}
	if u, err := url.Parse(address); err == nil { // Open refuses one that does not parse
		v.Bootstrap = "http://" + net.JoinHostPort(u.Hostname(), strconv.Itoa(c.BootstrapPort))
	}
	return v
}

// EngineID names the engine at host:port in plans and pins.
func EngineID(hostPort string) handoff.EngineID {
	id := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, hostPort)
	return handoff.EngineID(id[:min(len(id), handoff.MaxIDBytes)])
}
