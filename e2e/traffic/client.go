package traffic

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Limits of what the client reads.
const (
	maxAnswerBytes = 64 << 20
	maxErrorBytes  = 64 << 10
)

// Client sends asks to one gateway. Safe for concurrent use.
type Client struct {
	Base string // http://host:port
	http *http.Client
}

// NewClient keeps connections for many requests at once.
func NewClient(address string) *Client {
	return &Client{Base: "http://" + address, http: &http.Client{Transport: &http.Transport{
		MaxIdleConns: 4096, MaxIdleConnsPerHost: 4096, DisableCompression: true}}}
}

// NewMultiplexed has many streams share a connection, by HTTP/2 in the clear.
func NewMultiplexed(address string) *Client {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	return &Client{Base: "http://" + address, http: &http.Client{Transport: &http.Transport{Protocols: &p, DisableCompression: true}}}
}

// NewClientOf speaks to a gateway by its URL, which may be https.
func NewClientOf(base string) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("url %q: want http://host:port or https://host:port", base)
	}
	c := NewClient(u.Host)
	c.Base = strings.TrimRight(u.String(), "/")
	return c, nil
}

// NewClientWith shares the connections of another client.
func NewClientWith(base string, shared *http.Client) *Client {
	return &Client{Base: base, http: shared}
}

// Close drops the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Send asks and reads until the end. It never errs: whatever happened is in the
// answer. Ending ctx is the client leaving.
func (c *Client) Send(ctx context.Context, a Ask) (out Answer) {
	began := time.Now()
	defer func() { out.Total = time.Since(began) }()
	r, err := a.request(ctx, c.Base)
	if err != nil {
		out.Broken = err
		return out
	}
	resp, err := c.http.Do(r)
	if err != nil {
		out.Broken = err
		return out
	}
	out.read(resp, a.Whole, began, a.OnPiece)
	return out
}

// Begin sends a and returns once so many pieces of its answer have come, or it is
// over. The whole answer comes on the channel.
func (c *Client) Begin(ctx context.Context, a Ask, pieces int) <-chan Answer {
	begun, over := make(chan struct{}), make(chan Answer, 1)
	begins := sync.OnceFunc(func() { close(begun) })
	a.OnPiece = func(n int) {
		if n >= pieces {
			begins()
		}
	}
	go func() {
		defer begins()
		over <- c.Send(ctx, a)
	}()
	<-begun
	return over
}

// Stream posts a body as it is and reads the stream that answers it.
func (c *Client) Stream(ctx context.Context, path string, text []byte, headers map[string]string, onPiece func(int)) (out Answer) {
	began := time.Now()
	defer func() { out.Total = time.Since(began) }()
	r, err := newRequest(ctx, c.Base+path, text, headers)
	if err != nil {
		out.Broken = err
		return out
	}
	resp, err := c.http.Do(r)
	if err != nil {
		out.Broken = err
		return out
	}
	out.read(resp, false, began, onPiece)
	return out
}

// read takes the answer to its end and closes it.
func (a *Answer) read(resp *http.Response, wholly bool, began time.Time, onPiece func(int)) {
	defer resp.Body.Close()
	a.Status, a.Handoff = resp.StatusCode, resp.Header.Get("X-Surehand-Handoff")
	a.Joined = resp.Header.Get("X-Surehand-Joined") == "true"
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		a.RetryAfter = time.Duration(seconds) * time.Second
	}
	switch {
	case resp.StatusCode != http.StatusOK:
		a.refused(io.LimitReader(resp.Body, maxErrorBytes))
	case wholly:
		a.whole(io.LimitReader(resp.Body, maxAnswerBytes), began)
	default:
		a.stream(io.LimitReader(resp.Body, maxAnswerBytes), began, onPiece)
	}
}

// Insist sends an ask as OpenAI's own clients do: again, for a while, as long as
// the refusal is one that says so. It also says how often it was refused.
func (c *Client) Insist(ctx context.Context, a Ask, patience, pause time.Duration) (out Answer, refused int) {
	for until := time.Now().Add(patience); ; refused++ {
		out = c.Send(ctx, a)
		if out.Status != http.StatusServiceUnavailable && out.Status != http.StatusTooManyRequests || time.Now().After(until) {
			return out, refused
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return out, refused
		}
	}
}

// Post sends any body anywhere and tells the status and, if it is a typed
// refusal, which.
func (c *Client) Post(ctx context.Context, path, contentType string, text []byte, headers map[string]string) (out Answer) {
	r, err := newRequest(ctx, c.Base+path, text, headers)
	if err != nil {
		out.Broken = err
		return out
	}
	r.Header.Set("Content-Type", contentType)
	resp, err := c.http.Do(r)
	if err != nil {
		out.Broken = err
		return out
	}
	defer resp.Body.Close()
	out.Status = resp.StatusCode
	if resp.StatusCode != http.StatusOK {
		out.refused(io.LimitReader(resp.Body, maxErrorBytes))
	}
	return out
}

// Raw asks for any URL with a key, on a connection of its own, and gives the answer as it is.
func Raw(ctx context.Context, method, url, key string) (status int, text string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return 0, "", err
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	r.Close = true
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	return resp.StatusCode, string(raw), err
}
