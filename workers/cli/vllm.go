package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/surehand/surehand/activities/ledger/redisledger"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/telemetry"
	"github.com/surehand/surehand/workers/vllmengine"
)

const vllmLong = `The front of one vLLM server that runs Surehand's connector (surehand-vllm):
it gives the server the engine API and registers it in the store.

The server's KV cache lies in memory that the transferd beside it shares. vLLM
is started with surehand_vllm on its PYTHONPATH and

  --kv-transfer-config '{"kv_connector": "SurehandConnector", "kv_connector_module_path": "surehand_vllm.connector",
      "kv_role": "kv_producer" or "kv_consumer", "engine_id": ID, "kv_load_failure_policy": "fail",
      "kv_connector_extra_config": {"transferd_socket": SOCKET, "front_socket": SOCKET}}'`

const vllmExamples = `  transferd --node d1 --data /tmp/d1 --engine-socket /tmp/d1.sock --control 127.0.0.1:9001 --peer 127.0.0.1:9002
  surehand vllm --url http://127.0.0.1:8000 --role decode --id d1 --connector-socket /tmp/d1-front.sock \
      --listen 127.0.0.1:9000 --transferd-control 127.0.0.1:9001 --redis redis://127.0.0.1:6379`

// connectorWait is how long vLLM may take to load a model and call.
const connectorWait = 15 * time.Minute

type vllmFlags struct {
	traces traceFlags
	secure engineTLS
	vllmengine.Config
	id, role, redis, metrics string
	redisPlaintext           bool
}

func newVLLM() *cobra.Command {
	var v vllmFlags
	c := &cobra.Command{
		Use: "vllm", Short: "Front of a vLLM server that runs Surehand's connector", Long: vllmLong, Example: vllmExamples,
		GroupID: groupProcess, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return v.run(c) },
	}
	f := c.Flags()
	f.StringVar(&v.URL, "url", "", "URL of the vLLM server")
	f.StringVar(&v.role, "role", "", "prefill, decode or both")
	f.StringVar(&v.id, "id", "", "name of the engine, [a-z0-9._-]; the connector's engine_id")
	f.StringVar(&v.Socket, "connector-socket", "", "Unix socket at which the connector calls (its front_socket)")
	f.StringVar(&v.Listen, "listen", "127.0.0.1:0", "gRPC address")
	f.StringVar(&v.Control, "transferd-control", "", "control address of the transferd beside the server, as others reach it")
	f.StringVar(&v.redis, "redis", "redis://127.0.0.1:6379", "Redis URL of the registry")
	f.BoolVar(&v.redisPlaintext, "redis-plaintext", false, "permit clear text to a Redis on another host")
	f.StringVar(&v.Model, "model", "", "name of the model (default: the one that vLLM serves)")
	f.StringVar(&v.APIKey, "vllm-api-key", "", "API key of the server; better in the environment, as SUREHAND_VLLM_API_KEY")
	f.BoolVar(&v.Plaintext, "vllm-plaintext", false, "permit http to a server on another host")
	f.DurationVar(&v.QueueWait, "queue-wait", vllmengine.DefaultQueueWait, "for blocks of the server, before a reservation is refused")
	f.DurationVar(&v.Grace, "grace", 0, "for running attempts, after SIGTERM (default 5s)")
	f.StringVar(&v.metrics, "metrics", "", metricsUsage)
	v.secure.flags(f)
	v.traces.flags(c)
	for _, name := range []string{"url", "role", "id", "connector-socket", "transferd-control"} {
		if err := c.MarkFlagRequired(name); err != nil {
			panic(err) // a name that is no flag
		}
	}
	return c
}

func (v *vllmFlags) run(c *cobra.Command) (err error) {
	ctx, stop := untilStopped(c)
	defer stop()
	if v.Log, err = logger(c, "vllm-"+v.id); err != nil {
		return err
	}
	untraced, err := v.traces.start(ctx, "vllm", false, v.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, untraced()) }()
	var known bool
	if v.Role, known = engineRoles[v.role]; !known {
		return fmt.Errorf("--role %q is none of prefill, decode, both", v.role)
	}
	v.ID = handoff.EngineID(v.id)
	if v.TLS, err = v.secure.config(v.Listen); err != nil {
		return err
	}
	registry, err := redisledger.Open(redisledger.Options{URL: v.redis, Plaintext: v.redisPlaintext})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, registry.Close()) }()
	waiting, cancel := context.WithTimeout(ctx, connectorWait)
	defer cancel()
	running, err := vllmengine.New(waiting, v.Config)
	if err != nil {
		if ctx.Err() != nil {
			return nil // asked to stop before vLLM was there
		}
		return err
	}
	defer func() { err = errors.Join(err, running.Close()) }()
	metrics := telemetry.Registry("engine")
	if err := metrics.Register(engineMetrics{running}); err != nil {
		return err
	}
	if v.metrics != "" {
		server, err := watched(v.metrics, v.secure.files, metrics, attached(running))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.Close()) }()
	}
	return serveEngine(ctx, running, &announcer{registry: registry, engine: running, advertise: v.secure.advertise, log: v.Log}, c.OutOrStdout())
}
