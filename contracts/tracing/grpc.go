package tracing

import (
	"strings"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
)

// traced are the calls that bring a handoff on. All others are polls, leases and
// health, which belong to no trace.
var traced = map[string]bool{
	"/surehand.engine.v1.Engine/Reserve": true, "/surehand.engine.v1.Engine/Prefill": true, "/surehand.engine.v1.Engine/Attach": true,
	"/surehand.transfer.v1.Transfer/Pull": true, "/surehand.transfer.v1.Transfer/Commit": true,
	"/surehand.transfer.v1.Transfer/Undo": true, "/surehand.transfer.v1.Transfer/Release": true, "/surehand.transfer.v1.Transfer/Revoke": true,
	"/surehand.submit.v1.Submit/Submit": true, "/surehand.submit.v1.Submit/Attach": true,
}

func filter(i *stats.RPCTagInfo) bool { return traced["/"+strings.TrimPrefix(i.FullMethodName, "/")] }

func options(t *tracer) []otelgrpc.Option {
	return []otelgrpc.Option{otelgrpc.WithTracerProvider(t.provider), otelgrpc.WithPropagators(w3c), otelgrpc.WithFilter(filter)}
}

// ServerOptions have a gRPC server take its callers' traces up; none while this
// process does not trace.
func ServerOptions() []grpc.ServerOption {
	t := process.Load()
	if t == nil {
		return nil
	}
	return []grpc.ServerOption{grpc.StatsHandler(otelgrpc.NewServerHandler(options(t)...))}
}

// DialOptions have a gRPC connection pass traces on.
func DialOptions() []grpc.DialOption {
	t := process.Load()
	if t == nil {
		return nil
	}
	return []grpc.DialOption{grpc.WithStatsHandler(otelgrpc.NewClientHandler(options(t)...))}
}
