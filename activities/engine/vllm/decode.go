package vllm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/surehand/surehand/contracts/handoff"
)

// MaxEventBytes bounds one server-sent event.
const MaxEventBytes = 8 << 20

// Decode sends D the client's body with P's parameters and gives the answer as
// it comes. It is the transfer and the start of the decode in one: call it once
// for an attempt. Ending ctx drops the connection, upon which D aborts.
//
// The salt must be the attempt's alone: D keeps what it fetched in its prefix cache
// before anybody could check it, and would serve a stale fetch again, without any
// transfer, to whoever asks with the same prompt and salt.
func (s *Server) Decode(ctx context.Context, r Request, p Prefilled, salt string, header http.Header) (*Answer, error) {
	resp, err := s.send(ctx, SideD, http.MethodPost, r.Path, r.Body.with(r.fetch(p, salt)...), header)
	if err != nil {
		return nil, err
	}
	return &Answer{ctx: ctx, body: resp.Body, stream: r.Stream, buf: make([]byte, 0, 4096)}, nil
}

// Answer is D's answer, read once by one reader.
type Answer struct {
	ctx    context.Context
	body   io.ReadCloser
	stream bool
	buf    []byte // read, not given
	given  int    // of buf, given by the last Next
	failed error  // told after what stood before it
	finish string
}

// Part is a piece of the answer: whole events of a stream, or the whole answer.
type Part struct {
	Bytes  []byte // as D wrote them; good until the next call
	Tokens uint32 // events that carry a choice
	Finish string // set on the last part
}

// Next waits for the next part. After the one with Finish it gives io.EOF. A
// stream that ends without [DONE], or with an error event, is a Failure: an end
// that D did not say is not an end.
func (a *Answer) Next() (Part, error) {
	if !a.stream {
		return a.wholeAnswer()
	}
	a.buf = a.buf[:copy(a.buf, a.buf[a.given:])]
	a.given = 0
	if a.failed != nil {
		return Part{}, a.failed
	}
	for {
		if p := a.take(); len(p.Bytes) > 0 {
			return p, nil
		}
		if a.failed != nil {
			return Part{}, a.failed
		}
		if err := a.fill(); err != nil {
			return Part{}, err
		}
	}
}

// fill reads once. It is called only while no whole event is held.
func (a *Answer) fill() error {
	if len(a.buf) == cap(a.buf) {
		if len(a.buf) >= MaxEventBytes {
			return &Failure{Reason: handoff.Errorf(handoff.CodeEngine, "D sent an event of more than %d bytes", MaxEventBytes)}
		}
		a.buf = append(make([]byte, 0, 2*cap(a.buf)), a.buf...)
	}
	n, err := a.body.Read(a.buf[len(a.buf):cap(a.buf)])
	a.buf = a.buf[:len(a.buf)+n]
	switch {
	case n > 0 || err == nil:
		return nil // an error comes again with the next read
	case errors.Is(err, io.EOF):
		return &Failure{Reason: handoff.Errorf(handoff.CodeEngine, "D ended the stream without its end")}
	}
	return unanswered(a.ctx, SideD, "stream", err)
}

// take gives the whole events that are held, up to the end or an error event.
func (a *Answer) take() (p Part) {
	for a.failed == nil {
		n := eventEnd(a.buf[a.given:])
		if n == 0 {
			break
		}
		event := a.buf[a.given : a.given+n]
		if status, bad := errorEvent(event); bad {
			words := bytes.TrimSpace(bytes.TrimPrefix(event, data))
			a.failed = answered(SideD, status, bytes.Clone(words))
			if status == http.StatusInternalServerError {
				a.failed = &Failure{Reason: handoff.Errorf(handoff.CodeEngine, "D reported an error inside its stream"), Status: status}
			}
			break
		}
		a.given += n
		if bytes.HasPrefix(event, done) {
			p.Finish = a.finish
			if p.Finish == "" {
				p.Finish = "stop"
			}
			a.failed = io.EOF
			break
		}
		if f := text(event, finishKey); f != "" {
			a.finish = f
		}
		if bytes.HasPrefix(event, data) && !bytes.Contains(event, noChoice) {
			p.Tokens++
		}
	}
	p.Bytes = a.buf[:a.given]
	return p
}

var (
	data      = []byte("data:")
	done      = []byte("data: [DONE]")
	noChoice  = []byte(`"choices":[]`)
	finishKey = []byte(`"finish_reason":`)
	errorKey  = []byte(`{"error":`)
	codeKey   = []byte(`"code":`)
)

// eventEnd is the length of the first event with its empty line; 0: not whole.
func eventEnd(b []byte) int {
	i := bytes.Index(b, []byte("\n\n"))
	j := bytes.Index(b, []byte("\n\r\n"))
	switch {
	case i < 0 && j < 0:
		return 0
	case j < 0 || i >= 0 && i < j:
		return i + 2
	}
	return j + 3
}

// errorEvent says whether D reports an error inside its stream, and with which
// status. Nothing else of its text is looked at.
func errorEvent(event []byte) (status int, bad bool) {
	rest, ok := bytes.CutPrefix(event, data)
	if !ok || !bytes.HasPrefix(bytes.TrimLeft(rest, " "), errorKey) {
		return 0, false
	}
	status = http.StatusInternalServerError
	if i := bytes.LastIndex(rest, codeKey); i >= 0 {
		digits := bytes.TrimLeft(rest[i+len(codeKey):], ` "`)
		if len(digits) >= 3 {
			if n, err := strconv.Atoi(string(digits[:3])); err == nil && n >= 400 && n < 600 {
				status = n
			}
		}
	}
	return status, true
}

// text is the short string that stands after key; "" for null or none. A key
// with its quotes cannot stand inside a JSON string.
func text(b, key []byte) string {
	i := bytes.LastIndex(b, key)
	if i < 0 {
		return ""
	}
	rest := bytes.TrimLeft(b[i+len(key):], " ")
	if len(rest) == 0 || rest[0] != '"' {
		return ""
	}
	end := bytes.IndexByte(rest[1:], '"')
	if end < 0 || end > clipBytes {
		return ""
	}
	return string(rest[1 : 1+end])
}

// wholeAnswer reads an answer that is no stream.
func (a *Answer) wholeAnswer() (Part, error) {
	if a.failed != nil {
		return Part{}, a.failed
	}
	a.failed = io.EOF
	b, err := io.ReadAll(io.LimitReader(a.body, MaxAnswerBytes+1))
	switch {
	case err != nil:
		return Part{}, unanswered(a.ctx, SideD, "answer", err)
	case len(b) > MaxAnswerBytes:
		return Part{}, &Failure{Reason: handoff.Errorf(handoff.CodeEngine, "D's answer has more than %d bytes", MaxAnswerBytes)}
	case len(bytes.TrimSpace(b)) == 0:
		return Part{}, &Failure{Reason: handoff.Errorf(handoff.CodeEngine, "D's answer is empty")}
	}
	p := Part{Bytes: b, Tokens: 1, Finish: text(b, finishKey)}
	if p.Finish == "" {
		p.Finish = "stop"
	}
	return p, nil
}

// Close drops the connection unless the answer was read to its end.
func (a *Answer) Close() {
	_ = a.body.Close() // nothing is learnt from it: the answer was read, or is dropped
}
