package redisbodies

import (
	"net"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/surehand/surehand/contracts/handoff"
)

// maxConnections bounds the connections of one process.
const maxConnections = 8

// Open makes a client of our own settings for a URL as the ledger takes it. It
// connects at the first call. plaintext permits redis:// to another host.
func Open(url string, plaintext bool) (*Bodies, error) {
	u, err := redis.ParseURL(url)
	if err != nil {
		// The parser's text may quote the URL, password included.
		return nil, handoff.Errorf(handoff.CodeInvalid, "redis url is malformed")
	}
	if u.TLSConfig == nil && !plaintext && !sameHost(u.Network, u.Addr) {
		return nil, handoff.Errorf(handoff.CodeDenied, "redis at %s without TLS", u.Addr)
	}
	return New(redis.NewClient(&redis.Options{
		Network: u.Network, Addr: u.Addr, DB: u.DB, Username: u.Username, Password: u.Password, TLSConfig: u.TLSConfig,
		MaxRetries: -1, DialerRetries: 1, DialTimeout: CallTimeout, ReadTimeout: CallTimeout, WriteTimeout: CallTimeout,
		PoolTimeout: CallTimeout, PoolSize: maxConnections, ContextTimeoutEnabled: true, Protocol: 2, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}))
}

func sameHost(network, address string) bool {
	if network == "unix" {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

// Close closes the connections.
func (b *Bodies) Close() error { return b.client.Close() }
