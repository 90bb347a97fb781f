// Package trace hands the fence's events to whoever watches, and to a file of
// JSON lines. Publishing never blocks: it is called under the fence's lock.
package trace

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"time"

	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/transferd/fence"
)

const (
	// MaxWatchers bounds the subscribers.
	MaxWatchers = 16
	// backlog is how far one may fall behind before it is dropped, loudly.
	backlog = 16384

	flushEvery = 100 * time.Millisecond
)

// Hub is the fan-out. NewHub.
type Hub struct {
	node        handoff.NodeID
	incarnation handoff.Incarnation

	mu       sync.Mutex
	watchers map[chan *transferv1.TraceEvent]struct{}
}

// NewHub makes a hub without watchers.
func NewHub(node handoff.NodeID, i handoff.Incarnation) *Hub {
	return &Hub{node: node, incarnation: i, watchers: map[chan *transferv1.TraceEvent]struct{}{}}
}

// Publish hands e to every watcher; one that fell behind is cut off, so that it
// knows that it missed something.
func (h *Hub) Publish(e fence.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.watchers) == 0 {
		return
	}
	m := &transferv1.TraceEvent{AtMicros: e.At.Microseconds(), Node: string(h.node), Incarnation: uint64(h.incarnation), Machine: e.Machine,
		Attempt: rpc.Attempt(e.Attempt), Event: e.Name, From: e.From, To: e.To}
	if e.Code != handoff.CodeNone {
		m.Code = e.Code.String()
	}
	for w := range h.watchers {
		select {
		case w <- m:
		default:
			delete(h.watchers, w)
			close(w)
		}
	}
}

// Subscribe gives events from now on. The channel is closed when the watcher
// fell behind, or at once when too many watch.
func (h *Hub) Subscribe() (<-chan *transferv1.TraceEvent, func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := make(chan *transferv1.TraceEvent, backlog)
	if h.watchers == nil || len(h.watchers) >= MaxWatchers {
		close(w)
		return w, func() {}
	}
	h.watchers[w] = struct{}{}
	return w, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if _, ok := h.watchers[w]; ok {
			delete(h.watchers, w)
			close(w)
		}
	}
}

// Close cuts every watcher off and refuses new ones.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watchers {
		close(w)
	}
	h.watchers = nil
}

// IsClosed says whether Close was called.
func (h *Hub) IsClosed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.watchers == nil
}

// line is one line of a trace file.
type line struct {
	AtMicros    int64  `json:"at_micros"`
	Node        string `json:"node"`
	Incarnation uint64 `json:"incarnation"`
	Machine     string `json:"machine"`
	Handoff     string `json:"handoff,omitempty"`
	Epoch       uint32 `json:"epoch,omitempty"`
	Nonce       string `json:"nonce,omitempty"`
	Event       string `json:"event"`
	From        string `json:"from,omitempty"`
	To          string `json:"to,omitempty"`
	Code        string `json:"code,omitempty"`
}

// WriteFile appends events to path until stop is closed; it subscribes before it
// returns. The wait function gives the first error of writing, which broke tells as
// soon as it happens: a disk that is full ends the file, never the daemon.
func (h *Hub) WriteFile(path string, stop <-chan struct{}, broke func(error)) (wait func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	events, leave := h.Subscribe()
	result := make(chan error, 1)
	go func() {
		w := bufio.NewWriter(f)
		err := h.copyEvents(w, events, stop, leave)
		if err != nil {
			leave()
			broke(err)
		}
		result <- errors.Join(err, w.Flush(), f.Close())
	}()
	return func() error { return <-result }, nil
}

func (h *Hub) copyEvents(w *bufio.Writer, events <-chan *transferv1.TraceEvent, stop <-chan struct{}, leave func()) error {
	enc := json.NewEncoder(w)
	flush := time.NewTicker(flushEvery)
	defer flush.Stop()
	for {
		select {
		case e, ok := <-events:
			if !ok && stop == nil || !ok && h.IsClosed() {
				return nil
			}
			if !ok { // the file fell behind: it says so, and goes on
				if err := enc.Encode(line{Node: string(h.node), Incarnation: uint64(h.incarnation), Machine: "trace", Event: "lost"}); err != nil {
					return err
				}
				events, leave = h.Subscribe()
				continue
			}
			a := e.GetAttempt()
			l := line{AtMicros: e.GetAtMicros(), Node: e.GetNode(), Incarnation: e.GetIncarnation(), Machine: e.GetMachine(), Handoff: a.GetHandoff(),
				Epoch: a.GetEpoch(), Event: e.GetEvent(), From: e.GetFrom(), To: e.GetTo(), Code: e.GetCode()}
			if a.GetNonce() != 0 {
				l.Nonce = handoff.Nonce(a.GetNonce()).String()
			}
			if err := enc.Encode(l); err != nil {
				return err
			}
		case <-flush.C:
			if err := w.Flush(); err != nil {
				return err
			}
		case <-stop:
			leave() // closes events; what is queued still comes
			stop = nil
		}
	}
}
