package redisledger

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/surehand/surehand/contracts/handoff"
)

// MaxConnections bounds the connections of one process.
const MaxConnections = 32

// Options say where the store is. URL is redis://, rediss:// (TLS) or unix://,
// with user, password and database as go-redis reads them; TLS replaces the
// configuration that rediss:// implies. For Cluster or Sentinel make the client
// yourself, retries off, and use New.
type Options struct {
	URL string
	TLS *tls.Config
	// Plaintext permits redis:// to a host that is not this one.
	Plaintext bool
	// Timeout bounds every call; zero is CallTimeout.
	Timeout time.Duration
}

// Open makes a ledger over a client of its own.
func Open(o Options) (*Ledger, error) {
	c, err := Client(o)
	if err != nil {
		return nil, err
	}
	l, err := New(c)
	if err != nil {
		return nil, err
	}
	l.timeout = cmp.Or(o.Timeout, CallTimeout)
	return l, nil
}

// Client is a client of our own settings, also for others that keep something
// in the same Redis. It connects at the first call and never retries by itself.
func Client(o Options) (*redis.Client, error) {
	u, err := redis.ParseURL(o.URL)
	if err != nil {
		// The parser's text may quote the URL, password included.
		return nil, handoff.Errorf(handoff.CodeInvalid, "redis url is malformed")
	}
	if o.TLS != nil {
		u.TLSConfig = o.TLS
	}
	if u.TLSConfig == nil && !o.Plaintext && !local(u.Network, u.Addr) {
		return nil, handoff.Errorf(handoff.CodeDenied, "redis at %s without TLS", u.Addr)
	}
	timeout := cmp.Or(o.Timeout, CallTimeout)
	return redis.NewClient(&redis.Options{
		Network: u.Network, Addr: u.Addr, DB: u.DB,
		Username: u.Username, Password: u.Password, TLSConfig: u.TLSConfig,

		MaxRetries:            -1,
		DialerRetries:         1,
		DialTimeout:           timeout,
		ReadTimeout:           timeout,
		WriteTimeout:          timeout,
		PoolTimeout:           timeout,
		PoolSize:              MaxConnections,
		ContextTimeoutEnabled: true,

		Protocol:                 2,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}), nil
}

func local(network, addr string) bool {
	if network == "unix" {
		return true
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// LogTo sends the driver's own remarks (a dial that failed, a connection that
// broke) to l, for the whole process. They hold no command and no argument.
func LogTo(l *slog.Logger) { redis.SetLogger(driverLog{l}) }

type driverLog struct{ *slog.Logger }

// Printf implements the driver's logger.
func (d driverLog) Printf(ctx context.Context, format string, v ...any) {
	d.WarnContext(ctx, "redis driver", "remark", fmt.Sprintf(format, v...))
}
