package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	submitv1 "github.com/surehand/surehand/contracts/gen/surehand/submit/v1"
	"github.com/surehand/surehand/workers/access"
	"github.com/surehand/surehand/workers/gateway"
	"github.com/surehand/surehand/workers/orchestrator"
	"github.com/surehand/surehand/workers/payload"
	"github.com/surehand/surehand/workers/quota"
	"github.com/surehand/surehand/workers/telemetry"
)

const serveLong = `Gateway and Temporal worker in one process. Run as many as you like.

It answers the OpenAI-compatible API with /healthz, /readyz and /metrics over
HTTP, and the submit API over gRPC. On SIGTERM it says that it is not
ready and refuses what is new with 503 for --notice, lets streams finish for
--grace, and ends the rest with a typed error.

Off loopback HTTP needs a certificate, and gRPC a client CA besides: workers
give it orders.`

const serveExamples = `  # on this machine, beside the parts of a running ` + "`surehand dev`" + `
  surehand serve --listen 127.0.0.1:8090 --grpc 127.0.0.1:8091 --redis redis://127.0.0.1:17300

  # in front of unmodified vLLM servers, P and D
  surehand serve --prefill http://127.0.0.1:8100 --decode http://127.0.0.1:8200

  # in a fleet
  surehand serve --listen 0.0.0.0:443 --grpc 0.0.0.0:8443 --advertise gw-1.example:8443 \
      --tls-cert gw.pem --tls-key gw.key --tls-client-ca fleet.pem --access access.yaml --fleet-key fleet.key \
      --peer-ca fleet.pem --peer-cert gw.pem --peer-key gw.key \
      --temporal temporal.example:7233 --temporal-tls --redis rediss://redis.example:6379`

const (
	openTimeout = 30 * time.Second
)

// serveFlags are serve's own.
type serveFlags struct {
	backends
	listen     gateway.Listen
	advertise  string
	access     string
	journal    bool
	grace      time.Duration
	notice     time.Duration
	native     nativeFlags
	pprof      string
	temporalUI string
	codecUI    string
	traces     traceFlags
}

func newServe() *cobra.Command {
	var s serveFlags
	c := &cobra.Command{
		Use: "serve", Short: "Gateway (OpenAI HTTP, gRPC) and Temporal worker in one process", Long: serveLong, Example: serveExamples,
		GroupID: groupProcess, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return s.run(c) },
	}
	f := c.Flags()
	f.StringVar(&s.listen.HTTP, "listen", "127.0.0.1:8080", "HTTP address")
	f.StringVar(&s.listen.GRPC, "grpc", "127.0.0.1:8081", "gRPC address")
	f.StringVar(&s.advertise, "advertise", "", "gRPC address at which workers and gateways reach this process (default: the one listened on)")
	f.StringVar(&s.listen.Cert, "tls-cert", "", "PEM file of the certificate of both listeners; read again when it changed, as the next two")
	f.StringVar(&s.listen.Key, "tls-key", "", "PEM file of its key")
	f.StringVar(&s.listen.ClientCA, "tls-client-ca", "", "PEM file of the CA of callers' certificates; over gRPC all must show one, over HTTP only who has no key of --access")
	f.StringVar(&s.access, "access", "", "YAML file of who may call: tenants, operators, their keys and limits (default: every caller is believed; loopback only)")
	f.BoolVar(&s.journal, "journal", false, "keep the tokens of every answer for a while, whether its request asks for that or not")
	f.DurationVar(&s.grace, "grace", gateway.DefaultGrace, "for streams, after SIGTERM")
	f.DurationVar(&s.notice, "notice", gateway.DefaultNotice, "after SIGTERM, in which it listens still and says that it is not ready")
	f.StringVar(&s.temporalUI, "temporal-ui", "", "address of Temporal's UI, such as http://127.0.0.1:8233, for the links of the page at /ui/ (default none)")
	f.StringVar(&s.codecUI, "codec-ui", "", "origin of the Temporal UI whose pages may ask this gateway to open sealed payloads for operators, at /codec\n(default: --temporal-ui; needs --payload-keys)")
	f.StringVar(&s.pprof, "pprof", "", "loopback address for Go profiles at /debug/pprof/ (default none)")
	_ = f.MarkHidden("pprof") // fails for an unknown flag only
	s.flags(c)
	s.traces.flags(c)
	s.native.flags(c)
	return c
}

func (s *serveFlags) run(c *cobra.Command) (err error) {
	ctx, stop := untilStopped(c)
	defer stop()
	log, err := logger(c, "serve")
	if err != nil {
		return err
	}
	untraced, err := s.traces.start(ctx, "serve", true, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, untraced()) }()
	who, err := s.callers(log)
	if err != nil {
		return err
	}
	if s.pprof != "" {
		profiles, err := telemetry.Pprof(s.pprof)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, profiles.Close()) }()
	}
	s.listen.Keyed = s.access != ""
	listeners, err := s.listen.Open()
	if err != nil {
		return err
	}
	if s.advertise == "" {
		s.advertise = listeners.GRPC()
	}
	spendMemory()
	registry := telemetry.Registry("serve")
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	o, engines, err := s.openFor(opening, log, registry)
	if err != nil {
		return errors.Join(err, listeners.Close())
	}
	defer func() { err = errors.Join(err, o.close()) }()
	conf := gateway.Config{Front: o, Reader: reader{o.Orchestrator}, Log: log, Registry: registry, Access: who, Grace: s.grace, Notice: s.notice, Native: engines, Operate: o.Orchestrator, Journal: s.journal, Temporal: s.histories()}
	if conf.Codec, err = s.codec(); err != nil {
		return errors.Join(err, listeners.Close())
	}
	beside := &company{}
	defer beside.close()
	if o.store != nil {
		limits := quota.New(o.store, log)
		conf.Quota = limits
		beside.run(limits.Run)
	}
	file, watched := who.(*access.File)
	if watched {
		beside.run(file.Watch)
	}
	if err := registry.Register(accessMetrics{file}); err != nil {
		return errors.Join(err, listeners.Close())
	}
	g, err := gateway.New(conf)
	if err != nil {
		return errors.Join(err, listeners.Close())
	}
	return serve(ctx, g, listeners, c.OutOrStdout())
}

// serve runs the gateway until ctx ends or a listener breaks.
func serve(ctx context.Context, g *gateway.Gateway, l *gateway.Listeners, out io.Writer) error {
	running := g.Serve(l)
	if err := sayReady(out, map[string]string{"http": l.HTTP(), "grpc": l.GRPC()}); err != nil {
		return errors.Join(err, running.Drain())
	}
	select {
	case <-ctx.Done():
		return running.Drain()
	case err := <-running.Failed():
		return errors.Join(err, running.Drain())
	}
}

// histories is where Temporal's UI shows the handoffs of this fleet; empty: nowhere.
func (s *serveFlags) histories() string {
	if s.temporalUI == "" {
		return ""
	}
	return strings.TrimSuffix(s.temporalUI, "/") + "/namespaces/" + url.PathEscape(s.temporal.namespace)
}

// codec opens sealed payloads for operators; nil: there are no keys, or no page
// that may ask.
func (s *serveFlags) codec() (*payload.Server, error) {
	origin := cmp.Or(s.codecUI, s.temporalUI)
	codec, err := s.temporal.codec()
	switch {
	case err != nil:
		return nil, err
	case codec == nil && s.codecUI != "":
		return nil, errors.New("--codec-ui needs --payload-keys: without them nothing is sealed")
	case codec == nil || origin == "":
		return nil, nil
	}
	return &payload.Server{Codec: codec, Origin: origin}, payload.Check(origin)
}

// company is what runs beside a gateway until it has drained.
type company struct {
	all  sync.WaitGroup
	ends []context.CancelFunc
}

func (b *company) run(fn func(context.Context)) {
	ctx, end := context.WithCancel(context.Background())
	b.ends = append(b.ends, end)
	b.all.Go(func() { fn(ctx) })
}

func (b *company) close() {
	for _, end := range b.ends {
		end()
	}
	b.all.Wait()
}

// reader is the orchestrator as the gRPC side of the gateway asks it.
type reader struct{ o *orchestrator.Orchestrator }

func (r reader) Planned(ctx context.Context, m *submitv1.PlannedRequest) error {
	return r.o.PlannedFromWire(ctx, m)
}

func (r reader) Ended(ctx context.Context, m *submitv1.EndedRequest) error {
	return r.o.EndedFromWire(ctx, m)
}
