// Package redischeck keeps bodies in Redis, each under one key that ends by
// itself. Without a sealing key it serves a Redis on this host only.
package redischeck

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/surehand/surehand/activities"
	"github.com/surehand/surehand/activities/claimcheck"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// CallTimeout bounds a call; it is off the critical path.
const CallTimeout = 2 * time.Second

// MaxConnections bounds the connections of one process.
const MaxConnections = 8

// Options say where the store is and how bodies are sealed there.
type Options struct {
	URL string // redis://, rediss:// or unix://, as go-redis reads them
	TLS *tls.Config
	// Keys seal and open (claimcheck.NewSealer). None: bodies lie in clear, which
	// is refused unless the Redis is on this host.
	Keys [][]byte
	// Plaintext permits redis:// to another host; bodies are sealed all the same.
	Plaintext bool
	Timeout   time.Duration // of every call; zero is CallTimeout
}

// Store is a claimcheck.Store in Redis.
type Store struct {
	client  redis.UniversalClient
	sealer  *claimcheck.Sealer // nil: in clear, on this host
	timeout time.Duration
}

var _ claimcheck.Store = (*Store)(nil)

// Open makes a client of our own settings. It connects at the first call.
func Open(o Options) (*Store, error) {
	u, err := redis.ParseURL(o.URL)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeInvalid, "claim check url is malformed") // the parser's text may quote its password
	}
	if o.TLS != nil {
		u.TLSConfig = o.TLS
	}
	here := local(u.Network, u.Addr)
	if u.TLSConfig == nil && !here && !o.Plaintext {
		return nil, handoff.Errorf(handoff.CodeDenied, "claim check at %s without TLS", u.Addr)
	}
	s := &Store{timeout: cmp.Or(o.Timeout, CallTimeout)}
	switch {
	case len(o.Keys) > 0:
		if s.sealer, err = claimcheck.NewSealer(o.Keys...); err != nil {
			return nil, err
		}
	case !here:
		return nil, handoff.Errorf(handoff.CodeDenied, "claim check at %s without a sealing key: prompts would lie there in clear", u.Addr)
	}
	s.client = redis.NewClient(&redis.Options{
		Network: u.Network, Addr: u.Addr, DB: u.DB, Username: u.Username, Password: u.Password, TLSConfig: u.TLSConfig,
		MaxRetries: -1, DialerRetries: 1, DialTimeout: s.timeout, ReadTimeout: s.timeout, WriteTimeout: s.timeout, PoolTimeout: s.timeout,
		PoolSize: MaxConnections, ContextTimeoutEnabled: true, Protocol: 2, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	return s, nil
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
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// name is a body's key, and what its seal is bound to. Neither id has a slash.
func name(tenant string, h handoff.HandoffID) string {
	return "surehand:body:" + tenant + "/" + string(h)
}

// Put implements claimcheck.Store.
func (s *Store) Put(ctx context.Context, in steps.Input, b activities.Body) error {
	h := in.Plan.Attempt.Handoff
	if err := claimcheck.Validate(in.Tenant, h); err != nil {
		return err
	}
	raw, err := claimcheck.Marshal(b)
	if err != nil {
		return err
	}
	if s.sealer != nil {
		raw = s.sealer.Seal(name(in.Tenant, h), raw)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return unknown(s.client.Set(ctx, name(in.Tenant, h), raw, claimcheck.TTL(in)).Err())
}

// Body implements activities.Bodies.
func (s *Store) Body(ctx context.Context, tenant string, h handoff.HandoffID) (activities.Body, error) {
	if err := claimcheck.Validate(tenant, h); err != nil {
		return activities.Body{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	raw, err := s.client.Get(ctx, name(tenant, h)).Bytes()
	switch {
	case errors.Is(err, redis.Nil):
		return activities.Body{}, claimcheck.Gone(h)
	case err != nil:
		return activities.Body{}, unknown(err)
	}
	if s.sealer != nil {
		if raw, err = s.sealer.Open(name(tenant, h), raw); err != nil {
			return activities.Body{}, err
		}
	}
	return claimcheck.Unmarshal(raw)
}

// Drop implements claimcheck.Store.
func (s *Store) Drop(ctx context.Context, tenant string, h handoff.HandoffID) error {
	if err := claimcheck.Validate(tenant, h); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return unknown(s.client.Del(ctx, name(tenant, h)).Err())
}

// Close ends the connections.
func (s *Store) Close() error { return unknown(s.client.Close()) }

// unknown is a call whose result is not known (rule 23).
func unknown(err error) error {
	if err == nil {
		return nil
	}
	return handoff.Errorf(handoff.CodeUnavailable, "claim check: %v", err)
}
