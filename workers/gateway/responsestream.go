package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/orchestrator"
)

// Sequence numbers of a response's events, by which a client says where it
// stopped. They follow from the answer alone, so that any gateway gives an event
// the number that another gave it: a delta's from where it ends, with a place
// behind it for a resume record; they grow, and not by one.
const (
	seqCreated = iota
	seqInProgress
	seqItem
	seqPart
	seqText // of what ends at token 0, and two more for each token

	seqPerToken = 2
	// What follows the last token, from its number on.
	seqResumed  = 1
	seqTail     = 1 // text that came with no token of its own
	seqTextDone = 2
	seqPartDone = 3
	seqItemDone = 4
	seqOver     = 5
)

// responseStream writes one response as OpenAI's typed events.
type responseStream struct {
	w     http.ResponseWriter
	out   *sender
	f     orchestrator.Follower
	clock *clock
	b     *response
	after int64 // events up to this number are known to the client
	buf   []byte
	end   uint32 // of the tokens that were seen
	item  bool   // the answer has begun
}

// run follows the answer to its end. Eagerly it says at once that the response is
// there; else the status waits for the first event, so that an error before any
// token is a status.
func (s *responseStream) run(ctx context.Context, eager bool) (last orchestrator.Event, left bool) {
	if eager {
		if s.begin() != nil {
			return clientLeft, true
		}
	}
	e, left := next(ctx, s.f)
	if left {
		return e, true
	}
	if e.Err != nil && !eager {
		asRefusal(e.Err).write(s.w, s.f.Handoff())
		return e, false
	}
	if !eager && s.begin() != nil {
		return clientLeft, true
	}
	for {
		s.event(e)
		if s.flush() != nil {
			return clientLeft, true
		}
		if e.Terminal() {
			return e, false
		}
		if e, left = next(ctx, s.f); left {
			return e, true
		}
	}
}

var clientLeft = orchestrator.Event{Err: handoff.Errorf(handoff.CodeCancelled, "the client left")}

func (s *responseStream) begin() error {
	streaming(s.w.Header())
	s.put(seqCreated, "response.created", "response", s.b)
	s.put(seqInProgress, "response.in_progress", "response", s.b)
	return s.flush()
}

// event appends what one event of the handoff says.
func (s *responseStream) event(e orchestrator.Event) {
	if e.Tokens > 0 {
		s.clock.piece()
		s.end = e.Position + e.Tokens
	}
	if e.Resumed != nil {
		s.put(s.at()+seqResumed, "surehand.resumed", "from_epoch", e.Resumed.From, "to_epoch", e.Epoch, "position", e.Resumed.Position)
	}
	if e.Text != "" {
		seq := s.at()
		if e.Tokens == 0 {
			seq += seqTail
		}
		s.delta(seq, e.Text)
	}
	if e.Finish != "" {
		s.end = max(s.end, e.Usage.Completion) // also where the last of them had no text
	}
	if e.Terminal() {
		s.over(e)
	}
}

// at is the number of what ends where the tokens end that were seen.
func (s *responseStream) at() int64 { return seqText + seqPerToken*int64(s.end) }

func (s *responseStream) delta(seq int64, text string) {
	if !s.item {
		s.item = true
		s.put(seqItem, "response.output_item.added", "output_index", 0, "item", s.b.message(responseRunning, []responseText{}))
		s.put(seqPart, "response.content_part.added", "item_id", s.b.messageID(), "output_index", 0, "content_index", 0, "part", outputText(""))
	}
	s.b.text.WriteString(text)
	s.put(seq, "response.output_text.delta", "item_id", s.b.messageID(), "output_index", 0, "content_index", 0, "delta", text, "logprobs", []int{})
}

// over appends what ends a stream: the whole text, unless it failed, and the
// response as it is now kept.
func (s *responseStream) over(e orchestrator.Event) {
	s.b.end(e)
	if s.item && e.Err == nil {
		part := s.b.Output[0].Content[0]
		s.put(s.at()+seqTextDone, "response.output_text.done", "item_id", s.b.messageID(), "output_index", 0, "content_index", 0, "text", part.Text, "logprobs", []int{})
		s.put(s.at()+seqPartDone, "response.content_part.done", "item_id", s.b.messageID(), "output_index", 0, "content_index", 0, "part", part)
		s.put(s.at()+seqItemDone, "response.output_item.done", "output_index", 0, "item", s.b.Output[0])
	}
	kind := map[string]string{responseCompleted: "response.completed", responseIncomplete: "response.incomplete"}[s.b.Status]
	if kind == "" {
		kind = "response.failed" // OpenAI has no other for one that was cancelled; its status says so
	}
	s.put(s.at()+seqOver, kind, "response", s.b)
}

// put appends an event that the client does not know, with these fields.
func (s *responseStream) put(seq int64, kind string, fields ...any) {
	if seq <= s.after {
		return
	}
	s.buf = append(append(append(s.buf, "event: "...), kind...), "\ndata: {\"type\":"...)
	s.buf = appendQuoted(s.buf, kind)
	s.buf = strconv.AppendInt(append(s.buf, `,"sequence_number":`...), seq, 10)
	for i := 0; i < len(fields); i += 2 {
		s.buf = append(appendQuoted(append(s.buf, ','), fields[i].(string)), ':')
		if text, ok := fields[i+1].(string); ok {
			s.buf = appendQuoted(s.buf, text)
			continue
		}
		value, err := json.Marshal(fields[i+1])
		if err != nil {
			panic(err) // of types that have no such values
		}
		s.buf = append(s.buf, value...)
	}
	s.buf = append(s.buf, "}\n\n"...)
}

// flush is answer.flush.
func (s *responseStream) flush() error {
	if len(s.buf) == 0 {
		return nil
	}
	err := s.out.send(s.buf)
	s.buf = s.buf[:0]
	return err
}

func (b *response) messageID() string { return "msg_" + strings.TrimPrefix(b.ID, responsePrefix) }

func (b *response) message(status string, content []responseText) responseOutput {
	return responseOutput{Type: "message", ID: b.messageID(), Status: status, Role: "assistant", Content: content}
}

func outputText(text string) responseText {
	return responseText{Type: "output_text", Text: text, Annotations: []string{}}
}

// streamsResponse reads whether a look at a response is to be a stream, and behind
// which event.
func streamsResponse(r *http.Request) (stream bool, after int64, err error) {
	q := r.URL.Query()
	switch v := q.Get("stream"); v {
	case "", "false":
	case "true":
		stream = true
	default:
		return false, 0, refuse("stream", "stream is true or false")
	}
	after = -1
	if v := q.Get("starting_after"); v != "" {
		if after, err = strconv.ParseInt(v, 10, 64); err != nil || after < 0 || !stream {
			return false, 0, refuse("starting_after", "starting_after is the sequence_number of an event of this response, with stream=true")
		}
	}
	return stream, after, nil
}

// followResponse streams a response from behind the event that its client saw
// last. A client that leaves changes nothing: the answer is followed on from here.
func (g *Gateway) followResponse(w http.ResponseWriter, r *http.Request, after int64) {
	clock := g.metrics.start(surfaceResponse)
	ctx, cancel := g.live(r.Context())
	defer cancel()
	id, f, err := g.responseOf(r)
	if err != nil {
		refused := asRefusal(err)
		clock.end(refused.Code(), nil)
		refused.write(w, "")
		return
	}
	w.Header().Set(headerHandoff, id)
	s := &responseStream{w: w, out: newSender(w), f: f, clock: clock, b: newResponse(id, f.Model, f.Created, true), after: after}
	last, left := s.run(ctx, false)
	g.account(surfaceResponse, clock, r, id, last, left)
	if left {
		tenant, _ := named(r.Context(), r.Header.Get(headerTenant), id)
		g.unseen.hold(g.stopping, tenant+"/"+id, f, func() {})
		return
	}
	f.Close()
}
