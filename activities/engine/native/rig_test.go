package native

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/activities/engine/vllm/vllmtest"
	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/activities/ledger/memledger"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a fleet over fake engines.
type rig struct {
	*Fleet
	t      *testing.T
	ledger *memledger.Ledger
	p, d   []*vllmtest.Engine
}

func newRig(t *testing.T, ps, ds []vllmtest.Options, change func(*Config)) *rig {
	t.Helper()
	n := vllmtest.NewNetwork()
	r := &rig{t: t, ledger: memledger.New(nil)}
	c := Config{Registry: r.ledger, Log: slog.New(slog.DiscardHandler), Refresh: 20 * time.Millisecond}
	for _, o := range ps {
		e := n.Start(t, o)
		r.p, c.Prefill = append(r.p, e), append(c.Prefill, e.URL())
	}
	for _, o := range ds {
		e := n.Start(t, o)
		r.d, c.Decode = append(r.d, e), append(c.Decode, e.URL())
	}
	if change != nil {
		change(&c)
	}
	f, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	r.Fleet = f
	t.Cleanup(f.Close)
	r.serving(len(ps) + len(ds))
	return r
}

func pair(t *testing.T) *rig {
	return newRig(t, []vllmtest.Options{{}}, []vllmtest.Options{{}}, nil)
}

// serving waits until n engines are announced.
func (r *rig) serving(n int) {
	r.t.Helper()
	r.eventually("engines are announced", func() bool {
		list, err := r.ledger.Engines(context.Background())
		return err == nil && len(list) == n
	})
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			r.t.Fatalf("did not come true in time: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// run is one attempt as the steps drive it.
type run struct {
	*rig
	plan  handoff.Plan
	p, d  *seat
	body  string
	token handoff.Token

	mu     sync.Mutex
	text   string
	finish string
	counts engine.Counts
	read   chan error
}

const streamed = `{"model":"fake","prompt":"abc","max_tokens":3,"stream":true}`

func (r *rig) attempt(epoch handoff.Epoch, p, d int) *run {
	r.t.Helper()
	x := &run{rig: r, body: streamed, read: make(chan error, 1)}
	x.p, x.d = r.byAddress[r.rigURL(r.p, p)], r.byAddress[r.rigURL(r.d, d)]
	seat := func(s *seat) handoff.Seat {
		return handoff.Seat{Engine: s.id, Node: NodeID, Incarnation: r.incarnation}
	}
	x.plan = handoff.Plan{Attempt: handoff.Attempt{Handoff: "h1", Epoch: epoch, Nonce: handoff.Nonce(epoch) + 7}, P: seat(x.p), D: seat(x.d), BodyDigest: handoff.Digest{1}}
	return x
}

func (r *rig) rigURL(list []*vllmtest.Engine, i int) string { return list[i].URL() }

func (x *run) envelope() []byte {
	b, err := Request{Ref: "ref", Path: "/v1/completions", Header: http.Header{"Traceparent": {"t"}}, Body: []byte(x.body)}.Encode()
	if err != nil {
		x.t.Error(err)
	}
	return b
}

func (x *run) reserve() error {
	got, err := x.d.Reserve(x.t.Context(), engine.Reservation{Plan: x.plan, PromptTokens: 10, Sampling: engine.Sampling{MaxTokens: 3}, Lease: 5 * time.Second})
	if err == nil {
		x.token = got.Token
	}
	return err
}

func (x *run) prefill() error {
	_, err := x.p.Prefill(x.t.Context(), engine.Prefill{Plan: x.plan, Prompt: x.envelope()}, nil, nil)
	return err
}

func (x *run) mover(s *seat) daemon { return daemon{s} }

func (x *run) pull() error {
	_, err := x.mover(x.d).Pull(x.t.Context(), client.PullSpec{Plan: x.plan, Token: x.token}, nil)
	return err
}

func (x *run) commit() error {
	ans, err := x.mover(x.d).Commit(x.t.Context(), x.plan, x.token, "op", 5*time.Second)
	if err == nil && ans.State != handoff.TargetCommitted {
		x.t.Errorf("commit answered %s", ans.State)
	}
	return err
}

// after has P asked so much earlier: no test's own pace ends a lease, or keeps it.
func (x *run) after(since time.Duration) {
	run := x.attempts[x.plan.Attempt].prefill
	run.asked = run.asked.Add(-since)
}

// attach begins to read; wait gives how it ended.
func (x *run) attach() {
	go func() {
		x.read <- x.d.Attach(x.t.Context(), x.plan, x.token, 0, func(e engine.DecodeEvent) error {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.text += string(e.Text)
			if e.Finish != "" {
				x.finish, x.counts = e.Finish, e.Counts
			}
			return nil
		})
	}()
}

func (x *run) got() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.text
}

func (x *run) wait() error {
	x.t.Helper()
	select {
	case err := <-x.read:
		return err
	case <-time.After(15 * time.Second):
		x.t.Fatal("the reading did not end")
		return nil
	}
}

// must drives steps that have to succeed.
func (x *run) must(steps ...func() error) *run {
	x.t.Helper()
	for i, step := range steps {
		if err := step(); err != nil {
			x.t.Fatalf("step %d: %v", i, err)
		}
	}
	return x
}

func (x *run) whole() {
	x.t.Helper()
	if err := x.wait(); err != nil {
		x.t.Fatal(err)
	}
	if !strings.Contains(x.got(), " w2") || !strings.HasSuffix(x.got(), "data: [DONE]\n\n") || x.finish != "length" || strings.Contains(x.got(), "stale") {
		x.t.Errorf("read %q, %q", x.got(), x.finish)
	}
}

func (x *run) undo(release bool) (client.CloseAnswer, error) {
	close := daemon.Undo
	if release {
		close = daemon.Release
	}
	target, err := close(x.mover(x.d), x.t.Context(), x.plan, "op", client.Sides{Target: true})
	if err != nil {
		return target, err
	}
	source, err := close(x.mover(x.p), x.t.Context(), x.plan, "op", client.Sides{Source: true})
	target.Source, target.Validated = source.Source, source.Validated
	return target, err
}

func (r *rig) clean() {
	r.t.Helper()
	r.eventually("nothing is under way", func() bool { a, b := r.Open(); return a+b == 0 })
	for i, p := range r.p {
		r.eventually("P "+string(rune('0'+i))+" holds nothing", func() bool { return p.Held() == 0 })
	}
	if r.table.Live() != 0 {
		r.t.Errorf("%d targets hold room", r.table.Live())
	}
}

func wants(t *testing.T, what string, err error, want handoff.Code) {
	t.Helper()
	if handoff.CodeOf(err) != want {
		t.Errorf("%s: %v, want %s", what, err, want)
	}
}

var _ ledger.Registry = (*memledger.Ledger)(nil)
