package client

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

const (
	// Silence is for how long a host may answer no packet before its connections are
	// given up, unless it is told otherwise.
	Silence = 3 * time.Second
	// SilenceMin is the shortest that kernels count.
	SilenceMin = 2 * time.Second

	probeEvery = time.Second
	// pingEvery finds a process that was stopped: its kernel still answers for it. gRPC
	// allows no shorter interval.
	pingEvery = 10 * time.Second
)

// Dialer has this host's kernel probe the peer's while a connection carries nothing,
// and give it up with ETIMEDOUT once no packet came for so long; 0: Silence. A process
// that is busy, swapped out or stopped is no silent host: its kernel answers.
func Dialer(silence time.Duration) *net.Dialer {
	silence = silenceOr(silence)
	idle := max(probeEvery, (silence / 3).Truncate(time.Second))
	return &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: idle, Interval: probeEvery, Count: int((silence - idle + probeEvery - 1) / probeEvery)}}
}

// Keepalive goes with Dialer: it also bounds how long what was sent may go without an
// acknowledgement, and asks the process itself now and then.
func Keepalive(silence time.Duration) grpc.DialOption {
	return grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: silenceOr(silence)})
}

// DialOptions are both, for host:port.
func DialOptions(silence time.Duration) []grpc.DialOption {
	d := Dialer(silence)
	return []grpc.DialOption{Keepalive(silence), grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		return d.DialContext(ctx, "tcp", address)
	})}
}

func silenceOr(silence time.Duration) time.Duration {
	if silence == 0 {
		return Silence
	}
	return max(silence, SilenceMin)
}
