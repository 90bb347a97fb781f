package vllmengine

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/activities/engine/reference"
	enginev1 "github.com/surehand/surehand/contracts/gen/surehand/engine/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/layout"
	"github.com/surehand/surehand/contracts/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const soon = 5 * time.Second

var (
	plan = handoff.Plan{
		Attempt:    handoff.Attempt{Handoff: "h", Epoch: 1, Nonce: 7},
		P:          handoff.Seat{Engine: "e", Node: "te", Incarnation: 3},
		D:          handoff.Seat{Engine: "e", Node: "te", Incarnation: 3},
		Reader:     handoff.Reader{Process: "g", Incarnation: 1, Number: 1},
		BodyDigest: handoff.Digest{1},
	}
	token = handoff.Token{Attempt: plan.Attempt, Node: "te", Incarnation: 3, Generation: 5}
)

// lies is how the engine's memory lies.
var lies = layout.Described{Layout: layout.Layout{BlockTokens: 128, Parallel: 1, Caches: []layout.Cache{{Name: "kv0", Layers: 4, KVHeads: 2, HeadDim: 32,
	DType: "float32", Packing: layout.PackedKV, Order: layout.HND, Interior: "vllm"}}}, Model: layout.Model{Heads: []uint32{2}}}

func hello() *enginev1.ConnectorHello {
	fingerprint := lies.Layout.Fingerprint()
	described, err := rpc.EncodeLayout(lies)
	if err != nil {
		panic(err)
	}
	return &enginev1.ConnectorHello{Engine: "e", Revision: "r", Layout: fingerprint[:], Described: described, BlockTokens: 128, Blocks: 63, MaxTokens: 1024, Model: "tiny"}
}

// request is one that reached vLLM.
type request struct {
	completion
	plan *enginev1.RequestPlan
	send chan string   // events; closed: the end
	left chan struct{} // closed when the front has left
}

// rig is a front between a vLLM and a connector that do what a test says.
type rig struct {
	t         *testing.T
	front     *Engine
	engine    engine.Engine
	requests  chan *request
	connector net.Conn
	orders    chan *enginev1.FrontMessage
}

func newRig(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, requests: make(chan *request, 16), orders: make(chan *enginev1.FrontMessage, 1024)}
	over, end := context.WithCancel(context.Background())
	vllm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { r.serve(over, w, q) }))
	c := Config{ID: "e", Role: engine.RoleBoth, Listen: "127.0.0.1:0", URL: vllm.URL, Socket: filepath.Join(t.TempDir(), "s"), Control: "127.0.0.1:1",
		Grace: time.Millisecond, QueueWait: soon, notice: 50 * time.Millisecond}
	if change != nil {
		change(&c)
	}
	called := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(called)
		for r.connector == nil {
			conn, err := net.Dial("unix", c.Socket)
			if err != nil {
				time.Sleep(time.Millisecond)
				continue
			}
			r.connector = conn
		}
		r.say(&enginev1.ConnectorMessage{Body: &enginev1.ConnectorMessage_Hello{Hello: hello()}})
		r.say(&enginev1.ConnectorMessage{Body: &enginev1.ConnectorMessage_Beside{Beside: &enginev1.ConnectorBeside{
			Attached: true, Node: "te", Incarnation: 3, PeerAddress: "127.0.0.1:2"}}})
	})
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	front, err := New(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	<-called
	reading.Go(r.listen)
	serving, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- front.Serve(serving) }()
	connections := reference.NewConnections(nil, 0)
	r.front = front
	if r.engine, err = connections.Engine(front.Address()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		end()
		for _, err := range []error{<-served, front.Close(), connections.Close()} {
			if err != nil {
				t.Error(err)
			}
		}
		_ = r.connector.Close() // broken by the front's end, or before
		reading.Wait()
		vllm.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return r
}

func (r *rig) serve(over context.Context, w http.ResponseWriter, q *http.Request) {
	if q.URL.Path == pathTokenize {
		var asked tokenizing
		if err := json.NewDecoder(q.Body).Decode(&asked); err != nil {
			r.t.Error(err)
		}
		ids := make([]int, len(asked.Messages))
		if asked.Prompt != nil {
			ids = make([]int, len(*asked.Prompt))
		}
		if err := json.NewEncoder(w).Encode(map[string]any{"tokens": ids}); err != nil {
			r.t.Error(err)
		}
		return
	}
	got := &request{send: make(chan string), left: make(chan struct{}), plan: new(enginev1.RequestPlan)}
	b, err := io.ReadAll(q.Body)
	if err == nil {
		err = json.Unmarshal(b, &got.completion)
	}
	if err == nil {
		b, err = base64.StdEncoding.DecodeString(got.KVTransfer["surehand"])
	}
	if err == nil {
		err = proto.Unmarshal(b, got.plan)
	}
	if err != nil {
		r.t.Error(err)
	}
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	r.requests <- got
	for {
		select {
		case event, more := <-got.send:
			if !more {
				return
			}
			_, _ = fmt.Fprintf(w, "data: %s\n\n", event) // the front may have left
			w.(http.Flusher).Flush()
		case <-q.Context().Done():
			close(got.left)
			return
		case <-over.Done():
			return
		}
	}
}

func (r *rig) say(m *enginev1.ConnectorMessage) {
	b, err := proto.Marshal(m)
	if err == nil {
		_, err = r.connector.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...))
	}
	if err != nil {
		r.t.Error(err)
	}
}

func (r *rig) listen() {
	for {
		var head [4]byte
		if _, err := io.ReadFull(r.connector, head[:]); err != nil {
			return
		}
		b := make([]byte, binary.LittleEndian.Uint32(head[:]))
		m := new(enginev1.FrontMessage)
		if _, err := io.ReadFull(r.connector, b); err != nil || proto.Unmarshal(b, m) != nil {
			return
		}
		r.orders <- m
	}
}

func (r *rig) opened(cached uint32) {
	r.say(&enginev1.ConnectorMessage{Body: &enginev1.ConnectorMessage_Target{Target: &enginev1.ConnectorTarget{
		Attempt: rpc.Attempt(plan.Attempt), Token: rpc.Token(token), PromptTokens: 300, CachedTokens: cached, Blocks: 3}}})
}

func (r *rig) committed() {
	r.say(&enginev1.ConnectorMessage{Body: &enginev1.ConnectorMessage_Committed{Committed: &enginev1.ConnectorCommitted{Attempt: rpc.Attempt(plan.Attempt)}}})
}

func (r *rig) over(source bool, cause string) {
	r.say(&enginev1.ConnectorMessage{Body: &enginev1.ConnectorMessage_Over{Over: &enginev1.ConnectorOver{Attempt: rpc.Attempt(plan.Attempt), Source: source, Cause: cause}}})
}

func (r *rig) freed(source bool) {
	r.say(&enginev1.ConnectorMessage{Body: &enginev1.ConnectorMessage_Freed{Freed: &enginev1.ConnectorFreed{Attempt: rpc.Attempt(plan.Attempt), Source: source}}})
}

func (r *rig) readable() {
	r.say(&enginev1.ConnectorMessage{Body: &enginev1.ConnectorMessage_Opened{Opened: &enginev1.ConnectorOpened{
		Attempt: rpc.Attempt(plan.Attempt), Capability: []byte("cap"), PromptTokens: 300}}})
}

func (r *rig) sealed() {
	r.say(&enginev1.ConnectorMessage{Body: &enginev1.ConnectorMessage_Source{Source: &enginev1.ConnectorSource{
		Attempt: rpc.Attempt(plan.Attempt), Capability: []byte("cap"), PromptTokens: 300, CachedTokens: 128}}})
}

var reservation = engine.Reservation{Plan: plan, Prompt: []byte("[1,2,3]"), Sampling: engine.Sampling{MaxTokens: 4}, TenantSalt: "t", Lease: time.Second}

// reserve has D's request parked and its target open.
func (r *rig) reserve() *request {
	r.t.Helper()
	type result struct {
		engine.Reserved
		err error
	}
	done := make(chan result, 1)
	go func() {
		got, err := r.engine.Reserve(r.t.Context(), reservation)
		done <- result{got, err}
	}()
	q := <-r.requests
	r.opened(128)
	if got := <-done; got.err != nil || got.Token != token || got.Blocks != 3 {
		r.t.Fatalf("%+v", got)
	}
	return q
}

// attach collects an answer.
func (r *rig) attach() (text string, last engine.DecodeEvent, err error) {
	err = r.engine.Attach(r.t.Context(), plan, token, 0, func(e engine.DecodeEvent) error {
		text, last = text+string(e.Text), e
		return nil
	})
	return text, last, err
}

func (r *rig) eventually(what string, is func() bool) {
	r.t.Helper()
	for end := time.Now().Add(soon); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatal("it did not come about: " + what)
		}
	}
}

func (r *rig) holdsNothing() {
	r.t.Helper()
	r.eventually("nothing is held", func() bool {
		d := r.front.Description()
		return d.GetTargetsHeld()+d.GetSourcesHeld() == 0
	})
}

func (r *rig) gone(q *request) {
	r.t.Helper()
	select {
	case <-q.left:
	case <-time.After(soon):
		r.t.Fatal("vLLM's request goes on")
	}
}

func wantCode(t *testing.T, err error, code handoff.Code) {
	t.Helper()
	if handoff.CodeOf(err) != code {
		t.Fatalf("%v, want %s", err, code)
	}
}
