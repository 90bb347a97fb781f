package vllm

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/tracing"
	"github.com/surehand/surehand/transferd/client"
)

// Limits of one server.
const (
	// MaxAnswerBytes bounds an answer that is read whole.
	MaxAnswerBytes = 64 << 20
	// MaxRefusalBytes bounds what is kept of a refusal.
	MaxRefusalBytes = 64 << 10
	dialTimeout     = time.Second
	idleConns       = 1024
	idleTimeout     = 30 * time.Second // below the servers' own keep-alive, so that they do not close under us
)

// Config is where a server is and how it is spoken to.
type Config struct {
	URL    string
	Style  Style
	APIKey string // sent as a bearer token unless the client's own is forwarded
	TLS    *tls.Config
	// Plaintext allows http to an address that is not loopback: for a network
	// that is protected by other means.
	Plaintext bool
	// Bootstrap is the URL of P's Mooncake bootstrap server.
	Bootstrap string
	// Silence is for how long the server's host may answer no packet; 0: client.Silence.
	Silence time.Duration
}

// dialer notices a host that fell silent, also while nothing is asked of it.
func (c Config) dialer() *net.Dialer {
	d := client.Dialer(c.Silence)
	d.Timeout = dialTimeout
	return d
}

// Server is one vLLM server. Safe for concurrent use.
type Server struct {
	config Config
	base   *url.URL
	client *http.Client
}

// Open prepares a server; it connects at the first use. Close it.
func Open(c Config) (*Server, error) {
	base, err := url.Parse(c.URL)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") || base.RawQuery != "" {
		return nil, handoff.Errorf(handoff.CodeInvalid, "engine address is no http(s)://host:port")
	}
	if base.Scheme == "http" && !c.Plaintext && !loopback(base.Hostname()) {
		return nil, handoff.Errorf(handoff.CodeDenied, "engine at %s is not on loopback: use https, or allow plaintext", base.Host)
	}
	switch c.Style {
	case NIXLPull, NIXLPush, Mooncake:
	default:
		return nil, handoff.Errorf(handoff.CodeInvalid, "style %q, want %s, %s or %s", clip(string(c.Style)), NIXLPull, NIXLPush, Mooncake)
	}
	transport := &http.Transport{
		DialContext:         c.dialer().DialContext,
		TLSClientConfig:     c.TLS,
		MaxIdleConns:        idleConns,
		MaxIdleConnsPerHost: idleConns,
		IdleConnTimeout:     idleTimeout,
		DisableCompression:  true, // bytes pass as they are
		ForceAttemptHTTP2:   false,
	}
	return &Server{config: c, base: base, client: &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Close drops the connections that idle.
func (s *Server) Close() { s.client.CloseIdleConnections() }

// Address is host:port.
func (s *Server) Address() string { return s.base.Host }

// Style is how the server's connector transfers.
func (s *Server) Style() Style { return s.config.Style }

// send makes one request. It is never repeated once a byte of it was written:
// no header here makes net/http think that a POST may be.
func (s *Server) send(ctx context.Context, side Side, method, path string, body []byte, header http.Header) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.base.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeInternal, "request to %s: malformed", side)
	}
	if s.config.APIKey != "" {
		r.Header.Set("Authorization", "Bearer "+s.config.APIKey)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	r.Header.Del("Idempotency-Key")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if t := tracing.Text(ctx); t != "" {
		r.Header.Set(tracing.Header, t)
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return nil, unanswered(ctx, side, path, err)
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		words, err := io.ReadAll(io.LimitReader(resp.Body, MaxRefusalBytes))
		if err != nil {
			words = nil // the status says enough
		}
		return nil, answered(side, resp.StatusCode, words)
	}
	return resp, nil
}

// whole reads an answer to its end, within a limit.
func whole(ctx context.Context, side Side, path string, resp *http.Response) ([]byte, error) {
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, MaxAnswerBytes+1))
	if err != nil {
		return nil, unanswered(ctx, side, path, err)
	}
	if len(b) > MaxAnswerBytes {
		return nil, handoff.Errorf(handoff.CodeEngine, "%s: answer of more than %d bytes", side, MaxAnswerBytes)
	}
	return b, nil
}

func (s *Server) get(ctx context.Context, side Side, path string) ([]byte, error) {
	resp, err := s.send(ctx, side, http.MethodGet, path, nil, nil)
	if err != nil {
		return nil, err
	}
	return whole(ctx, side, path, resp)
}
