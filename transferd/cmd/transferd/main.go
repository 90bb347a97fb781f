// Command transferd is the native daemon that owns what may be read and written
// in the KV memory of one host's engines. It runs, and refuses, without Temporal
// and Redis.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/viper"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/daemon"
	"github.com/surehand/surehand/transferd/internal/native"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "transferd:", err)
		os.Exit(1)
	}
}

const example = `  # two daemons of one machine, plaintext on loopback
  transferd --node p0 --data /var/lib/transferd/p0 --peer 127.0.0.1:7401 --control unix:///run/transferd/p0.sock
  transferd --node d0 --data /var/lib/transferd/d0 --peer 127.0.0.1:7402 --control 127.0.0.1:7502

  # one host of many: mutual TLS; the certificate's id is spiffe://kv.example/transferd/d7
  transferd --node d7 --data /var/lib/transferd --peer 10.0.0.7:7401 --control 10.0.0.7:7501 \
    --tls-cert d7.pem --tls-key d7.key --tls-ca ca.pem --trust-domain kv.example --metrics 127.0.0.1:9401

  # flags may stand in a file or in the environment; flags win over it, it over the file
  SUREHAND_TRANSFERD_NODE=p0 transferd --config /etc/surehand/transferd.yaml

  # is it up, and does it serve; what does this host have; how fast are its lanes
  curl --unix-socket /run/transferd/health.sock http://transferd/readyz
  transferd topo
  transferd bench`

func command() *cobra.Command {
	v := viper.New()
	cmd := &cobra.Command{
		Use:     "transferd",
		Short:   "Owns and moves the KV memory of one host's engines",
		Example: example,
		Long: "Owns what may be read and written in the KV memory of one host's engines, and moves the bytes\n" +
			"between hosts. It runs, and refuses, without Temporal and Redis. When it serves it prints one line\n" +
			"of JSON with its addresses; a SIGTERM lets what runs end within a lease.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := configure(v, cmd); err != nil {
				return err
			}
			return run(cmd.Context(), v, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.AddCommand(topoCommand(), benchCommand())
	f := cmd.Flags()
	f.String("config", "", "file of flags (yaml, json, toml)")
	f.String("node", "", "name of this daemon, unique in the deployment (required)")
	f.String("data", "", "folder for the incarnation; one daemon each (required)")
	f.String("engine-socket", "", "Unix socket of the engine side (default: DATA/engine.sock)")
	f.String("control", "", "unix:///path or host:port of the control side (default: unix://DATA/control.sock)")
	f.String("peer", "127.0.0.1:0", "host:port of the peer side")
	f.String("advertise", "", "host:port by which other daemons reach the peer side (default: what it listens on); several, by commas, are rails: the first is preferred, one that fails pauses while the next carries on")
	f.String("metrics", "", "unix:///path or host:port of /metrics, /healthz and /readyz; off loopback with our certificate, and metrics for callers with one")
	f.String("cuda", cudaLibrary, "CUDA driver library, for engines with device memory; empty: none. A host without it loses nothing else")
	f.Duration("lease", handoff.LeaseDefault, "lease of targets and sources")
	f.Duration("progress-deadline", handoff.ProgressDeadline, "how long a pull may go without a new byte")
	f.Uint64("quarantine-bytes", 0, "per engine, bytes that may be quarantined before opens are refused (default: a quarter of its segment)")
	f.Int("tcp-streams", daemon.DefaultStreams(), "connections that one large pull may use side by side")
	f.Bool("allow-unchecked", false, "let transfers ask for no checksums: only inside one trust domain, over lanes that check by themselves")
	f.Bool("reread", false, "read what landed once more before it is verified: memory that changed since is found and read again; costs a pass over it")
	f.String("trace", "", "file to which every transition is appended as a JSON line")
	f.Bool("audit", false, "log a line for each grant, refusal, revocation, commit, tenant crossing and connection that is turned away; metadata only")
	f.String("tls-cert", "", "certificate of this node, for control and peer sides; read again when it changed, as the next two")
	f.String("tls-key", "", "its key")
	f.String("tls-ca", "", "authority that peers and callers are verified by")
	f.String("trust-domain", "", "SPIFFE trust domain: certificates carry spiffe://DOMAIN/transferd/NODE, callers of the control side spiffe://DOMAIN/orchestrator/NAME (default: certificates name nodes by DNS name)")
	f.String("otlp-endpoint", "", "OpenTelemetry collector for traces (OTLP over gRPC): https://host:4317, or http:// on loopback (default: OTEL_EXPORTER_OTLP_ENDPOINT, else none)")
	f.Bool("die-with-parent", false, "end when the process that started this one ends")
	f.String("log-level", "info", "debug, info, warn or error")
	return cmd
}

// configure reads, weakest first: defaults, file, environment, flags.
func configure(v *viper.Viper, cmd *cobra.Command) error {
	v.SetEnvPrefix("SUREHAND_TRANSFERD")
	v.SetEnvKeyReplacer(strings.NewReplacer("-", "_"))
	v.AutomaticEnv()
	if err := v.BindPFlags(cmd.Flags()); err != nil {
		return err
	}
	if file := v.GetString("config"); file != "" {
		v.SetConfigFile(file)
		if err := v.ReadInConfig(); err != nil {
			return fmt.Errorf("config: %w", err)
		}
	}
	for _, key := range []string{"node", "data"} {
		if v.GetString(key) == "" {
			return fmt.Errorf("--%s is required", key)
		}
	}
	return nil
}

// run serves until it is told to stop, its parent ends or a part breaks.
func run(ctx context.Context, v *viper.Viper, out, errOut io.Writer) (err error) {
	cfg, err := config(v, errOut)
	if err != nil {
		return err
	}
	var orphaned <-chan struct{} // nil: never
	if v.GetBool("die-with-parent") {
		if orphaned, err = native.ParentGone(); err != nil {
			return err
		}
	}
	untraced, err := traces(ctx, v, cfg.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, untraced()) }()
	d, err := daemon.Start(cfg)
	if err != nil {
		return err
	}
	ready := map[string]any{"ready": true, "node": cfg.Node, "control": d.ControlAddress(), "peer": d.PeerAddress(),
		"engine_socket": cfg.EngineSocket, "metrics": d.MetricsAddress(), "incarnation": d.Incarnation()}
	if err := json.NewEncoder(out).Encode(ready); err != nil {
		return errors.Join(err, d.Close())
	}
	select {
	case <-ctx.Done():
		cfg.Log.Info("stopping: no new target or source is opened, what runs may end")
		drain, cancel := context.WithTimeout(context.Background(), daemon.DrainTimeout)
		d.Drain(drain)
		cancel()
		return d.Close()
	case <-orphaned:
		return errors.Join(errors.New("the parent process ended"), d.Close())
	case err := <-d.Failed():
		return errors.Join(err, d.Close())
	}
}

func config(v *viper.Viper, errOut io.Writer) (daemon.Config, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(v.GetString("log-level"))); err != nil {
		return daemon.Config{}, fmt.Errorf("--log-level: %w", err)
	}
	data, err := filepath.Abs(v.GetString("data"))
	if err != nil {
		return daemon.Config{}, fmt.Errorf("--data: %w", err)
	}
	cfg := daemon.Config{
		Node: handoff.NodeID(v.GetString("node")), Data: data, EngineSocket: v.GetString("engine-socket"),
		Control: v.GetString("control"), Peer: v.GetString("peer"), Advertise: v.GetString("advertise"), Metrics: v.GetString("metrics"), TraceFile: v.GetString("trace"), CUDA: v.GetString("cuda"),
		Lease: v.GetDuration("lease"), ProgressDeadline: v.GetDuration("progress-deadline"), Streams: v.GetInt("tcp-streams"), QuarantineMax: v.GetUint64("quarantine-bytes"), Unchecked: v.GetBool("allow-unchecked"), Reread: v.GetBool("reread"),
		Log: slog.New(slog.NewJSONHandler(errOut, &slog.HandlerOptions{Level: level})),
	}
	if err := mutualTLS(v, &cfg); err != nil {
		return cfg, err
	}
	if v.GetBool("audit") {
		cfg.Audit = cfg.Log.With("node", cfg.Node)
	}
	if cfg.Lease < handoff.LeaseMin || cfg.Lease > handoff.LeaseMax {
		return cfg, fmt.Errorf("--lease %s out of %s..%s", cfg.Lease, handoff.LeaseMin, handoff.LeaseMax)
	}
	if cfg.ProgressDeadline <= 0 {
		return cfg, errors.New("--progress-deadline must be positive")
	}
	if cfg.EngineSocket == "" {
		cfg.EngineSocket = filepath.Join(data, "engine.sock")
	}
	if cfg.Control == "" {
		cfg.Control = "unix://" + filepath.Join(data, "control.sock")
	}
	return cfg, nil
}
