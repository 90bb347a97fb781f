package gateway

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

func TestManyStreamsShareAConnection(t *testing.T) {
	front := halfway()
	r := serve(t, front)
	var dials atomic.Int64
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	client := &http.Client{Transport: transport}
	const streams = 32
	open := make([]*http.Response, streams)
	leave := make([]context.CancelFunc, streams)
	for i := range open {
		var ctx context.Context
		ctx, leave[i] = context.WithCancel(t.Context())
		defer leave[i]()
		q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.http+"/v1/completions", strings.NewReader(`{"model":"tiny","prompt":"Hi","stream":true}`))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/json")
		if open[i], err = client.Do(q); err != nil || open[i].StatusCode != http.StatusOK {
			t.Fatal(open[i], err)
		}
		defer open[i].Body.Close()
		if _, err := io.ReadFull(open[i].Body, make([]byte, len("data: "))); err != nil { // its first piece is here
			t.Fatal(err)
		}
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
	leave[0]() // one client: the others' streams go on
	within(t, front.closed, "the end of the one that left")
	select {
	case id := <-front.closed:
		t.Fatalf("stream %s ended too", id)
	default:
	}
	close(front.hold)
	for _, o := range open[1:] {
		if _, err := io.Copy(io.Discard, o.Body); err != nil {
			t.Error(err)
		}
	}
	transport.CloseIdleConnections()
}
