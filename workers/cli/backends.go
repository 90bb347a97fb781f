package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/surehand/surehand/activities/claimcheck"
	"github.com/surehand/surehand/activities/claimcheck/redischeck"
	"github.com/surehand/surehand/activities/engine/reference"
	"github.com/surehand/surehand/activities/journal"
	"github.com/surehand/surehand/activities/journal/redisjournal"
	"github.com/surehand/surehand/activities/ledger/redisledger"
	"github.com/surehand/surehand/activities/operations"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
	"github.com/surehand/surehand/transferd/client"
	"github.com/surehand/surehand/transferd/identity"
	"github.com/surehand/surehand/workers/orchestrator"
	"github.com/surehand/surehand/workers/payload"
)

// temporalFlags say where histories are kept.
type temporalFlags struct {
	address, namespace, ca, cert, key, apiKey string
	payloadKeys                               string
	tls, plaintext, noAttributes              bool
}

func (t *temporalFlags) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&t.namespace, "namespace", "default", "Temporal namespace")
	f.StringVar(&t.ca, "temporal-tls-ca", "", "PEM file of the CA of Temporal's certificate (default: the system's)")
	f.StringVar(&t.cert, "temporal-tls-cert", "", "PEM file of our certificate for Temporal")
	f.StringVar(&t.key, "temporal-tls-key", "", "PEM file of our key for Temporal")
	f.StringVar(&t.apiKey, "temporal-api-key", "", "API key for Temporal; better in the environment, as SUREHAND_TEMPORAL_API_KEY")
	f.StringVar(&t.payloadKeys, "payload-keys", "", "file of base64 keys of 32 bytes, one a line, newest first, that seal payloads in Temporal's histories; the same\nfor every gateway and worker (default: none; payloads lie there in clear)")
	f.BoolVar(&t.tls, "temporal-tls", false, "speak TLS to Temporal without files of ours; an API key or a file implies it")
	f.BoolVar(&t.plaintext, "temporal-plaintext", false, "permit clear text to a Temporal on another host")
	f.BoolVar(&t.noAttributes, "temporal-no-attributes", false, "start workflows without search attributes, where the namespace has not got ours")
}

func (t *temporalFlags) config() (orchestrator.TemporalConfig, error) {
	c := orchestrator.TemporalConfig{HostPort: t.address, Namespace: t.namespace, APIKey: t.apiKey, NoAttributes: t.noAttributes}
	if t.address == "" {
		return c, errors.New("--temporal is missing: name a Temporal at host:port, or use `surehand dev`")
	}
	secure, err := clientTLS(t.ca, t.cert, t.key)
	if err != nil {
		return c, fmt.Errorf("temporal: %w", err)
	}
	if secure == nil && (t.tls || t.apiKey != "") {
		secure = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if secure == nil && !t.plaintext && !onLoopback(t.address) {
		return c, fmt.Errorf("temporal at %s: not a loopback address: give --temporal-tls, or --temporal-plaintext if the network is safe", t.address)
	}
	c.TLS = secure
	codec, err := t.codec()
	if codec != nil {
		c.Converter = payload.Converter(codec)
	}
	return c, err
}

// codec seals payloads; nil: they are not sealed.
func (t *temporalFlags) codec() (*payload.Codec, error) {
	keys, err := keysIn("--payload-keys", t.payloadKeys)
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	return payload.New(keys...)
}

// args passes the settings on to a child's command line, and secrets to its
// environment.
func (t *temporalFlags) args() (args, env []string) {
	args = []string{"--namespace", t.namespace}
	for _, f := range []struct{ name, value string }{{"--temporal-tls-ca", t.ca}, {"--temporal-tls-cert", t.cert}, {"--temporal-tls-key", t.key}, {"--payload-keys", t.payloadKeys}} {
		if f.value != "" {
			args = append(args, f.name, f.value)
		}
	}
	for name, on := range map[string]bool{"--temporal-tls": t.tls, "--temporal-plaintext": t.plaintext, "--temporal-no-attributes": t.noAttributes} {
		if on {
			args = append(args, name)
		}
	}
	if t.apiKey != "" {
		env = append(env, envPrefix+"_TEMPORAL_API_KEY="+t.apiKey)
	}
	return args, env
}

// backends are what serve and worker stand on.
type backends struct {
	temporal               temporalFlags
	redis, record          string
	redisPlaintext         bool
	lease, deadline        time.Duration
	decode                 time.Duration
	peerCA, peerCert       string
	peerKey, taskQueue     string
	trustDomain            string
	bodyKeys, fleetKey     string
	window, journalTTL     time.Duration
	comeback, leaksEvery   time.Duration
	silence                time.Duration
	serialBelow, maxEpochs uint32
	requireLane            string
	version                versionFlags
}

func (b *backends) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&b.temporal.address, "temporal", "127.0.0.1:7233", "Temporal at host:port")
	b.temporal.flags(c)
	f.StringVar(&b.redis, "redis", "redis://127.0.0.1:6379", "Redis URL; rediss:// is TLS")
	f.BoolVar(&b.redisPlaintext, "redis-plaintext", false, "permit clear text to a Redis on another host")
	f.StringVar(&b.bodyKeys, "body-keys", "", "file of base64 keys of 32 bytes, one a line, newest first, that seal prompts while they wait in Redis for recovery;\nneeded unless Redis is on this host (make one: head -c 32 /dev/urandom | base64)")
	f.StringVar(&b.fleetKey, "fleet-key", "", "file of the key that this process shows to the gateways of its fleet, whose access files hold its digest")
	f.StringVar(&b.record, "record", string(steps.RecordRequest), "what a history records: the whole request, or the handoff up to its commit")
	f.StringVar(&b.taskQueue, "task-queue", steps.TaskQueueServe, "Temporal task queue")
	f.DurationVar(&b.lease, "lease", handoff.LeaseDefault, "of capacity, targets and sources")
	f.DurationVar(&b.deadline, "deadline", 0, "until the first token, at most (default 1m)")
	f.DurationVar(&b.decode, "decode-budget", 0, "for the stream after it (default 15m)")
	f.Uint32Var(&b.serialBelow, "serial-below", 0, fmt.Sprintf("prompt tokens below which the transfer waits for the prefill (default %d)", handoff.OverlapTokens))
	f.StringVar(&b.requireLane, "require-lane", "", "transport that every transfer must use, of which transferd offers local and tcp: where it does not reach, the transfer is refused instead of taking another (default: the best that there is)")
	f.Uint32Var(&b.maxEpochs, "max-epochs", uint32(handoff.MaxEpochsBeforeFirstToken), "attempts before the first token")
	f.DurationVar(&b.window, "key-window", 0, "for which an idempotency key stands for its first request, whatever Temporal's retention (default 24h)")
	f.DurationVar(&b.journalTTL, "journal-ttl", 0, "for which a journal of delivered tokens outlives its last one (default 1h)")
	f.DurationVar(&b.comeback, "comeback", 0, "for which a journalled handoff waits for a client that left (default 30s)")
	f.DurationVar(&b.leaksEvery, "leaks-every", 0, "how often what daemons, engines and ledger hold for nobody is counted, for surehand_kv_blocks_unreleased (default 15s)")
	f.DurationVar(&b.silence, "silence", client.Silence, fmt.Sprintf("for which a host of engines, daemons or other gateways may answer no packet before it counts as gone, at least %s; a host that is only busy answers", client.SilenceMin))
	f.StringVar(&b.peerCA, "peer-ca", "", "PEM file of the CA of engines and other gateways; without it they are spoken to on loopback only")
	f.StringVar(&b.peerCert, "peer-cert", "", "PEM file of our certificate for them")
	f.StringVar(&b.peerKey, "peer-key", "", "PEM file of our key for them")
	b.version.flags(c)
	f.StringVar(&b.trustDomain, "trust-domain", "", "SPIFFE trust domain of daemons' certificates (default: they name their node as a DNS name)")
}

// opened is an orchestrator with all that it stands on.
type opened struct {
	*orchestrator.Orchestrator
	store   *redis.Client  // nil: none, as with native engines
	closers []func() error // newest last
}

// open connects. process names this process as a reader; empty: it reads nothing.
func (b *backends) open(ctx context.Context, process string, log *slog.Logger, r prometheus.Registerer) (o *opened, err error) {
	o = &opened{}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
			o = nil
		}
	}()
	temporal, err := b.temporal.config()
	if err != nil {
		return o, err
	}
	temporal.TaskQueue = b.taskQueue
	if temporal.Version, err = b.version.version(); err != nil {
		return o, err
	}
	peers, err := b.peers()
	if err != nil {
		return o, fmt.Errorf("peers: %w", err)
	}
	daemons, err := b.daemons()
	if err != nil {
		return o, fmt.Errorf("daemons: %w", err)
	}
	ledger, err := redisledger.Open(redisledger.Options{URL: b.redis, Plaintext: b.redisPlaintext})
	if err != nil {
		return o, err
	}
	o.closers = append(o.closers, ledger.Close)
	if o.store, err = redisledger.Client(redisledger.Options{URL: b.redis, Plaintext: b.redisPlaintext}); err != nil {
		return o, err
	}
	o.closers = append(o.closers, o.store.Close)
	keys, err := keysIn("--body-keys", b.bodyKeys)
	if err != nil {
		return o, err
	}
	bodies, err := redischeck.Open(redischeck.Options{URL: b.redis, Keys: keys, Plaintext: b.redisPlaintext})
	if err != nil {
		return o, fmt.Errorf("claim check of bodies: %w", err)
	}
	o.closers = append(o.closers, bodies.Close)
	fleet, err := fleetKey(b.fleetKey)
	if err != nil {
		return o, err
	}
	tokens, err := b.journal(o.store, keys)
	if err != nil {
		return o, err
	}
	engines, remote := reference.NewConnections(peers, b.silence), &orchestrator.Remote{TLS: peers, Key: fleet, Silence: b.silence}
	o.closers = append(o.closers, engines.Close, remote.Close)
	o.Orchestrator, err = orchestrator.New(ctx, orchestrator.Config{
		Process: process, Temporal: temporal, Ledger: ledger, Engines: engines, Daemons: daemons, Remote: remote, Silence: b.silence, Bodies: bodies,
		Operations: operations.New(o.store), Journal: tokens, JournalTTL: b.journalTTL, Comeback: b.comeback, LeaksEvery: b.leaksEvery, Window: b.window,
		Record: steps.Record(b.record), Lease: b.lease, Deadline: b.deadline, Decode: b.decode,
		SerialBelow: b.serialBelow, RequireLane: b.requireLane, MaxEpochs: handoff.Epoch(b.maxEpochs), CountTokens: countTokens, Log: log, Metrics: r,
	})
	if err != nil {
		return o, err
	}
	o.closers = append(o.closers, o.Orchestrator.Close)
	return o, nil
}

// peers is how engines and other gateways are spoken to. Nil without the files:
// loopback only.
func (b *backends) peers() (*tls.Config, error) {
	if b.silence < client.SilenceMin {
		return nil, fmt.Errorf("--silence %s is less than %s", b.silence, client.SilenceMin)
	}
	return clientTLS(b.peerCA, b.peerCert, b.peerKey)
}

// daemons is how their control sides are spoken to: with an identity of ours, as
// they let nobody in without. Nil without the files: loopback only.
func (b *backends) daemons() (*tls.Config, error) {
	if b.peerCA == "" || b.peerCert == "" || b.peerKey == "" {
		if b.trustDomain != "" {
			return nil, errors.New("--trust-domain needs --peer-ca, --peer-cert and --peer-key")
		}
		return nil, nil
	}
	id, err := identity.Open(identity.Files{Cert: b.peerCert, Key: b.peerKey, CA: b.peerCA, TrustDomain: b.trustDomain})
	if err != nil {
		return nil, err
	}
	return id.TLS(identity.Orchestrator), nil
}

// journal keeps delivered tokens in the same Redis as the bodies, sealed under
// the same keys; the claim check has refused a Redis elsewhere without any.
func (b *backends) journal(store *redis.Client, keys [][]byte) (journal.Journal, error) {
	if len(keys) == 0 {
		return redisjournal.New(store, nil), nil
	}
	sealer, err := claimcheck.NewSealer(keys...)
	if err != nil {
		return nil, err
	}
	return redisjournal.New(store, sealer), nil
}

// countTokens counts as the reference engines do: one a byte, and two that
// frame the prompt.
func countTokens(prompt []byte) uint32 { return uint32(len(prompt)) + 2 }

// close ends everything, newest first.
func (o *opened) close() error {
	var failed []error
	for i := len(o.closers) - 1; i >= 0; i-- {
		failed = append(failed, o.closers[i]())
	}
	o.closers = nil
	return errors.Join(failed...)
}
