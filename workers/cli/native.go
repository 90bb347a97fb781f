package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/surehand/surehand/activities/engine/native"
	"github.com/surehand/surehand/activities/engine/vllm"
	"github.com/surehand/surehand/activities/ledger/memledger"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
	"github.com/surehand/surehand/workers/gateway"
	"github.com/surehand/surehand/workers/orchestrator"
)

// taskQueueNative keeps the handoffs of native engines apart: only the process
// that holds their table can work on them.
const taskQueueNative = "surehand-native"

// nativeFlags name unmodified engines that hand over by themselves.
type nativeFlags struct {
	prefill, decode  []string
	transfer, apiKey string
	lease            time.Duration
	plaintext        bool
	recompute        bool
	concurrency      int
	waiting          int
	wait             time.Duration
	mooncakePort     int
	ca, cert, key    string
}

func (n *nativeFlags) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringSliceVar(&n.prefill, "prefill", nil, "URL of an unmodified vLLM that prefills (repeatable); engines need not register then, and no store is used")
	f.StringSliceVar(&n.decode, "decode", nil, "URL of an unmodified vLLM that decodes (repeatable)")
	f.StringVar(&n.transfer, "transfer", string(vllm.NIXLPull), "how these engines transfer: nixl, nixl-push or mooncake")
	f.DurationVar(&n.lease, "engine-lease", 0, "how long P pins a prompt, as the engine is configured (default: the engine's own)")
	f.StringVar(&n.apiKey, "engine-api-key", "", "API key of these engines; better in the environment, as SUREHAND_ENGINE_API_KEY")
	f.BoolVar(&n.plaintext, "engine-plaintext", false, "permit http to engines on other hosts")
	f.StringVar(&n.ca, "engine-ca", "", "PEM file of the CA of these engines' certificates")
	f.StringVar(&n.cert, "engine-cert", "", "PEM file of our certificate for them")
	f.StringVar(&n.key, "engine-key", "", "PEM file of our key for them")
	f.BoolVar(&n.recompute, "recompute", false, "let D compute a prompt that P gave no transfer for (counted), instead of refusing it")
	f.IntVar(&n.concurrency, "decode-concurrency", 0, "requests that one D runs at once, as its --max-num-seqs (default: learnt from its refusals)")
	f.IntVar(&n.waiting, "decode-waiting", native.DefaultWaiting, "requests of others that may wait at D before it counts as full")
	f.DurationVar(&n.wait, "queue-wait", native.DefaultWait, "for room at a D, before a request is planned; negative: refuse at once")
	f.IntVar(&n.mooncakePort, "mooncake-port", native.DefaultBootstrapPort, "port of P's Mooncake bootstrap server")
}

// on says whether engines are named.
func (n *nativeFlags) on() bool { return len(n.prefill)+len(n.decode) > 0 }

// openNative is open over a static fleet: the ledger is this process's memory,
// as is the table of what is under way, so there is one such process.
func (b *backends) openNative(ctx context.Context, n *nativeFlags, process string, log *slog.Logger, r prometheus.Registerer) (o *opened, fleet *native.Fleet, err error) {
	o = &opened{}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
			o, fleet = nil, nil
		}
	}()
	if b.requireLane != "" {
		return o, nil, errors.New("--require-lane is of transferd's transfers: engines without it choose their own")
	}
	temporal, err := b.temporal.config()
	if err != nil {
		return o, nil, err
	}
	if temporal.TaskQueue = b.taskQueue; b.taskQueue == steps.TaskQueueServe {
		temporal.TaskQueue = taskQueueNative
	}
	peers, err := b.peers()
	if err != nil {
		return o, nil, fmt.Errorf("peers: %w", err)
	}
	engines, err := clientTLS(n.ca, n.cert, n.key)
	if err != nil {
		return o, nil, fmt.Errorf("engines: %w", err)
	}
	ledger := memledger.New(nil)
	fleet, err = native.Open(native.Config{Prefill: n.prefill, Decode: n.decode, Style: vllm.Style(n.transfer), Lease: n.lease,
		BootstrapPort: n.mooncakePort, APIKey: n.apiKey, TLS: engines, Plaintext: n.plaintext, Recompute: n.recompute,
		Concurrency: n.concurrency, Waiting: n.waiting, Wait: n.wait, Silence: b.silence, Registry: ledger, Log: log, Metrics: r})
	if err != nil {
		return o, nil, err
	}
	o.closers = append(o.closers, func() error { fleet.Close(); return nil })
	remote := &orchestrator.Remote{TLS: peers, Silence: b.silence}
	o.closers = append(o.closers, remote.Close)
	o.Orchestrator, err = orchestrator.New(ctx, orchestrator.Config{
		Process: process, Temporal: temporal, Ledger: ledger, Engines: fleet, Movers: fleet, Remote: remote,
		Record: steps.Record(b.record), Lease: b.lease, Deadline: b.deadline, Decode: b.decode,
		SerialBelow: b.serialBelow, MaxEpochs: handoff.Epoch(b.maxEpochs), CountTokens: native.CountTokens, Log: log, Metrics: r,
	})
	if err != nil {
		return o, nil, err
	}
	o.closers = append(o.closers, o.Orchestrator.Close)
	return o, fleet, nil
}

// openFor opens what serve stands on, and tells the gateway of native engines.
func (s *serveFlags) openFor(ctx context.Context, log *slog.Logger, r prometheus.Registerer) (*opened, gateway.Native, error) {
	if !s.native.on() {
		o, err := s.open(ctx, s.advertise, log, r)
		return o, nil, err
	}
	o, fleet, err := s.openNative(ctx, &s.native, s.advertise, log, r)
	return o, fleet, err
}
