package gateway

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/surehand/surehand/workers/orchestrator"
)

// halfway is a front whose streams wait after their first piece.
func halfway() *front {
	f := newFront()
	f.hold = make(chan struct{})
	f.script = func(orchestrator.Request) ([]orchestrator.Event, error) {
		return []orchestrator.Event{{Text: "Hel", Tokens: 3}}, nil
	}
	return f
}

// drained starts the drain and says how it ended.
func (r *running) drained() <-chan error {
	done := make(chan error, 1)
	go func() { done <- r.drain() }()
	return done
}

// refusing polls until the gateway says that it is not ready, and then asks for
// more: the refusal has a type and a time to come again.
func (r *running) refusing(t *testing.T) {
	t.Helper()
	fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ready := func() int {
		res, err := fresh.Get("http://" + r.http + "/readyz")
		if err != nil {
			t.Fatal("it does not listen while a stream runs: ", err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	for deadline := time.Now().Add(10 * time.Second); ready() != 503; {
		if time.Now().After(deadline) {
			t.Fatal("it still says that it is ready")
		}
	}
	res := r.post(t, "/v1/completions", `{"model":"tiny","prompt":"Hi"}`)
	if e := read(t, all(t, res)).Error; res.StatusCode != 503 || e == nil || e.Code != "unavailable" || res.Header.Get("Retry-After") == "" {
		t.Fatal(res.StatusCode, e, res.Header)
	}
}

func TestADrainWithoutStreamsStillGivesNotice(t *testing.T) {
	r := serve(t, newFront(), func(c *Config) { c.Notice = 2 * time.Second })
	done := r.drained()
	r.refusing(t)
	if err := within(t, done, "end of the drain"); err != nil {
		t.Fatal(err)
	}
}

func TestADrainLetsStreamsFinish(t *testing.T) {
	f := halfway()
	r := serve(t, f)
	res := r.post(t, "/v1/completions", `{"model":"tiny","prompt":"Hi","stream":true}`)
	done := r.drained()
	r.refusing(t)
	select {
	case err := <-done:
		t.Fatal("the drain did not wait:", err)
	default:
	}
	close(f.hold)
	if body := all(t, res); !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Fatal(body)
	}
	if err := within(t, done, "end of the drain"); err != nil {
		t.Fatal(err)
	}
}

func TestAStreamThatOutlivesTheGraceEndsInATypedError(t *testing.T) {
	f := halfway()
	r := serve(t, f, func(c *Config) { c.Grace = 50 * time.Millisecond })
	res := r.post(t, "/v1/completions", `{"model":"tiny","prompt":"Hi","stream":true}`)
	done := r.drained()
	events := sse(t, all(t, res))
	if e := read(t, events[len(events)-1]).Error; e == nil || e.Code != "unavailable" || *e.Position != 3 {
		t.Fatal(events)
	}
	within(t, f.closed, "close") // cancelled, not left behind
	if err := within(t, done, "end of the drain"); err != nil {
		t.Fatal(err)
	}
}

func TestADrainingGatewayIsNotReadyAndTakesNothing(t *testing.T) {
	f := halfway()
	r := serve(t, f)
	res := r.post(t, "/v1/completions", `{"model":"tiny","prompt":"Hi","stream":true}`)
	done := r.drained()
	r.refusing(t)
	if err := r.g.Ready(t.Context()); !errors.Is(err, errStopping) {
		t.Error(err)
	}
	if _, _, err := r.g.begin(t.Context(), newAsk(kindText)); !errors.Is(err, errStopping) {
		t.Error(err)
	}
	close(f.hold)
	all(t, res)
	if err := within(t, done, "end of the drain"); err != nil {
		t.Fatal(err)
	}
}

func TestNoPlaintextListenerOffLoopback(t *testing.T) {
	for _, l := range []Listen{{HTTP: "0.0.0.0:0"}, {GRPC: "0.0.0.0:0"}, {HTTP: ":0"}, {HTTP: "127.0.0.1:0", GRPC: "[::]:0"}} {
		open, err := l.Open()
		if !errors.Is(err, ErrPlaintext) || open != nil {
			t.Errorf("%+v: %v", l, err)
		}
	}
	for _, l := range []Listen{{Cert: "c"}, {Key: "k"}, {ClientCA: "ca"}, {Cert: os.DevNull, Key: os.DevNull}} {
		if _, err := l.Open(); err == nil {
			t.Errorf("%+v was accepted", l)
		}
	}
}

func TestATakenPortIsSaid(t *testing.T) {
	first, err := Listen{HTTP: "127.0.0.1:0"}.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := (Listen{HTTP: first.HTTP()}).Open(); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Fatal(err)
	}
}

func TestTheStreamLimitIsRefusedAsCapacity(t *testing.T) {
	f := newFront()
	r := serve(t, f)
	r.g.streams.Store(MaxStreams)
	res := r.post(t, "/v1/completions", `{"model":"tiny","prompt":"Hi"}`)
	if e := read(t, all(t, res)).Error; res.StatusCode != 429 || e.Code != "capacity" || e.Type != "rate_limit_error" {
		t.Fatal(res.StatusCode, e)
	}
	if r.g.streams.Load() != MaxStreams || f.count() != 0 {
		t.Fatal("the refusal was counted as a stream")
	}
	r.g.streams.Store(0)
}
