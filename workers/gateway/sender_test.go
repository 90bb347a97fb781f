package gateway

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes are connections in memory, for time that is not the clock's.
type pipes struct {
	come chan net.Conn
	over chan struct{}
	once sync.Once
}

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	p.come <- there
	return here, nil
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.come:
		return c, nil
	case <-p.over:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.over) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// eachProtocol asks handle over HTTP/1 and HTTP/2.
func eachProtocol(t *testing.T, handle http.HandlerFunc, got func(*testing.T, *http.Response)) {
	for name, two := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &pipes{come: make(chan net.Conn), over: make(chan struct{})}
				var spoken http.Protocols
				spoken.SetHTTP1(!two)
				spoken.SetUnencryptedHTTP2(two)
				server := &http.Server{Handler: handle, Protocols: &spoken}
				served := make(chan error, 1)
				go func() { served <- server.Serve(p) }()
				transport := &http.Transport{DialContext: p.dial, Protocols: &spoken}
				defer func() {
					transport.CloseIdleConnections()
					if err := server.Close(); err != nil {
						t.Error(err)
					}
					<-served
				}()
				resp, err := (&http.Client{Transport: transport}).Get("http://gateway/")
				if err != nil || resp.Proto != name {
					t.Fatal(resp, err)
				}
				defer resp.Body.Close()
				got(t, resp)
			})
		})
	}
}

// HTTP/2 counts a deadline to a stream, HTTP/1 to a write: an answer that pauses for
// longer than a write may take is cut by neither.
func TestAStreamMayPauseForLongerThanAWriteMayTake(t *testing.T) {
	eachProtocol(t, func(w http.ResponseWriter, _ *http.Request) {
		s := newSender(w)
		for range 3 {
			if s.send([]byte("a")) != nil || s.sendString("b") != nil {
				return
			}
			time.Sleep(5 * writeTimeout)
		}
	}, func(t *testing.T, resp *http.Response) {
		if text, err := io.ReadAll(resp.Body); string(text) != "ababab" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
	})
}

func TestAClientThatTakesNothingIsGone(t *testing.T) {
	gone := make(chan time.Duration, 2)
	eachProtocol(t, func(w http.ResponseWriter, _ *http.Request) {
		s, text := newSender(w), strings.Repeat("a", 1<<20)
		for began := time.Now(); ; {
			if err := s.sendString(text); err != nil { // once what HTTP/2 takes ahead is full
				gone <- time.Since(began)
				return
			}
		}
	}, func(t *testing.T, _ *http.Response) {
		time.Sleep(2 * writeTimeout)
		synctest.Wait()
		select {
		case after := <-gone:
			if after != writeTimeout {
				t.Errorf("gone after %s", after)
			}
		default:
			t.Error("a stream that nobody takes goes on")
		}
	})
}
