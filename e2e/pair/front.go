package pair

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"sync"
)

// Front stands before an engine and passes everything on: it is the network, or
// another hop, that a test can make slow or blind.
type Front struct {
	URL    string
	server *http.Server
	served chan struct{}

	mu    sync.Mutex
	hold  func(context.Context) // of the next request with a prompt
	blind *regexp.Regexp        // lines of metrics that are not passed on
}

// NewFront listens in front of the engine at target. Close it.
func NewFront(target string) (*Front, error) {
	to, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &Front{URL: "http://" + l.Addr().String(), served: make(chan struct{})}
	pass := &httputil.ReverseProxy{FlushInterval: -1, ModifyResponse: f.filter,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
		// What breaks behind it breaks in front of it.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }}
	f.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hold := f.take(r); hold != nil {
			body, err := io.ReadAll(r.Body) // so that a client that leaves is noticed
			if err != nil {
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			hold(r.Context())
		}
		pass.ServeHTTP(w, r)
	})}
	go func() {
		defer close(f.served)
		_ = f.server.Serve(l) // ends with Close
	}()
	return f, nil
}

// HoldNext calls hold before the next request with a prompt is passed on, once.
func (f *Front) HoldNext(hold func(context.Context)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hold = hold
}

// Blind hides the metrics whose lines match.
func (f *Front) Blind(lines *regexp.Regexp) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.blind = lines
}

func (f *Front) take(r *http.Request) func(context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Method != http.MethodPost {
		return nil
	}
	hold := f.hold
	f.hold = nil
	return hold
}

func (f *Front) filter(resp *http.Response) error {
	f.mu.Lock()
	blind := f.blind
	f.mu.Unlock()
	if blind == nil || resp.Request.URL.Path != "/metrics" {
		return nil
	}
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var kept []byte
	for line := range bytes.Lines(page) {
		if !blind.Match(line) {
			kept = append(kept, line...)
		}
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(kept)), int64(len(kept))
	resp.Header.Del("Content-Length")
	return nil
}

// Close ends the front and the connections through it.
func (f *Front) Close() error {
	err := f.server.Close()
	<-f.served
	return err
}
