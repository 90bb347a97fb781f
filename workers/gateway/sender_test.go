package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// eachProtocol serves handle over HTTP/1 and HTTP/2.
func eachProtocol(t *testing.T, handle http.HandlerFunc, ask func(t *testing.T, url string, client *http.Client)) {
	for name, two := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(handle)
			server.EnableHTTP2 = two
			server.StartTLS()
			defer server.Close()
			ask(t, server.URL, server.Client())
		})
	}
}

// HTTP/2 counts a deadline to a stream, HTTP/1 to a write: an answer that pauses for
// longer than a write may take is cut by neither.
func TestAStreamMayPauseForLongerThanAWriteMayTake(t *testing.T) {
	const patient = 20 * time.Millisecond
	eachProtocol(t, func(w http.ResponseWriter, _ *http.Request) {
		s := newSender(w)
		s.patient = patient
		for range 3 {
			if s.send([]byte("a")) != nil || s.sendString("b") != nil {
				return
			}
			time.Sleep(5 * patient)
		}
	}, func(t *testing.T, url string, client *http.Client) {
		got, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer got.Body.Close()
		if text, err := io.ReadAll(got.Body); string(text) != "ababab" || err != nil {
			t.Errorf("%s: %q, %v", got.Proto, text, err)
		}
	})
}

func TestAClientThatTakesNothingIsGone(t *testing.T) {
	gone := make(chan error, 1)
	eachProtocol(t, func(w http.ResponseWriter, _ *http.Request) {
		s := newSender(w)
		s.patient = 20 * time.Millisecond
		text := strings.Repeat("a", 1<<20)
		for {
			if err := s.sendString(text); err != nil { // once what the kernel and HTTP/2 take is full
				gone <- err
				return
			}
		}
	}, func(t *testing.T, url string, client *http.Client) {
		got, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer got.Body.Close()
		within(t, gone, "the end of a stream that nobody takes")
	})
}
