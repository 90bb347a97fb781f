package gateway

import (
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/surehand/surehand/workers/orchestrator"
)

// chunk builds the events of one stream by hand into one buffer: what never
// changes between two tokens is made once, at the stream's begin.
type chunk struct {
	buf            []byte
	head, mid, end string // around a piece of text: head "text" mid end
	final          string // between head-of-choices and the finish reason
	begin          string // of every object, up to choices
	usage          bool
	ids            bool // say where each piece ends, for a client that comes back
}

// Objects and id prefixes of the two kinds.
var kinds = map[string]struct{ id, part, whole string }{
	kindText: {"cmpl-", "text_completion", "text_completion"},
	kindChat: {"chatcmpl-", "chat.completion.chunk", "chat.completion"},
}

// opening is an object up to its choices.
func opening(object, id, model string, created int64) string {
	return fmt.Sprintf(`{"id":%s,"object":%s,"created":%d,"model":%s,"choices":`, quote(id), quote(object), created, quote(model))
}

func newChunk(kind, handoffID, model string, created int64, usage bool) *chunk {
	k := kinds[kind]
	c := &chunk{begin: "data: " + opening(k.part, k.id+handoffID, model, created), usage: usage}
	c.head, c.mid = c.begin+`[{"index":0,"delta":{"content":`, `},"logprobs":null,"finish_reason":null}]`
	c.final = c.begin + `[{"index":0,"delta":{},"logprobs":null,"finish_reason":`
	if kind == kindText {
		c.head, c.mid = c.begin+`[{"index":0,"text":`, `,"logprobs":null,"finish_reason":null}]`
		c.final = c.begin + `[{"index":0,"text":"","logprobs":null,"finish_reason":`
	}
	c.end = "}\n\n"
	if usage {
		c.end = `,"usage":null}` + "\n\n"
	}
	return c
}

// role is the first event of a chat.
func (c *chunk) role() {
	c.buf = append(c.buf, c.begin...)
	c.buf = append(c.buf, `[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]`...)
	c.buf = append(c.buf, c.end...)
}

// id appends the name of the place behind e, which Last-Event-ID gives back.
func (c *chunk) id(e orchestrator.Event) {
	if c.ids && e.Tokens > 0 {
		c.buf = append(c.buf, "id: "...)
		c.buf = strconv.AppendUint(c.buf, uint64(e.Epoch), 10)
		c.buf = append(c.buf, '-')
		c.buf = strconv.AppendUint(c.buf, uint64(e.Position+e.Tokens), 10)
		c.buf = append(c.buf, '\n')
	}
}

// resumed appends the resume record: an object without choices, as that of the
// usage is, so that clients that do not know it pass over it.
func (c *chunk) resumed(e orchestrator.Event) {
	c.buf = append(c.buf, c.begin...)
	c.buf = append(c.buf, fmt.Sprintf(`[],"surehand_resumed":{"from_epoch":%d,"to_epoch":%d,"position":%d}`, e.Resumed.From, e.Epoch, e.Resumed.Position)...)
	c.buf = append(c.buf, c.end...)
}

// text appends one piece.
func (c *chunk) text(s string) {
	c.buf = append(c.buf, c.head...)
	c.buf = appendQuoted(c.buf, s)
	c.buf = append(c.buf, c.mid...)
	c.buf = append(c.buf, c.end...)
}

// finish appends the last piece, the usage if asked for, and [DONE].
func (c *chunk) finish(reason string, u orchestrator.Usage) {
	c.buf = append(c.buf, c.final...)
	c.buf = appendQuoted(c.buf, reason)
	c.buf = append(c.buf, "}]"...)
	c.buf = append(c.buf, c.end...)
	if c.usage {
		c.buf = append(c.buf, c.begin...)
		c.buf = append(c.buf, `[],"usage":`...)
		c.buf = appendUsage(c.buf, u)
		c.buf = append(c.buf, "}\n\n"...)
	}
	c.buf = append(c.buf, "data: [DONE]\n\n"...)
}

// fail appends the error event, after which nothing follows.
func (c *chunk) fail(body []byte) {
	c.buf = append(c.buf, "data: "...)
	c.buf = append(c.buf, body...)
	c.buf = append(c.buf, "\n\n"...)
}

// appendUsage tells the prompt's tokens apart by how their state came to D.
// cached_tokens is what OpenAI's clients read; the other two are ours.
func appendUsage(b []byte, u orchestrator.Usage) []byte {
	for _, f := range []struct {
		name  string
		value uint32
	}{
		{`{"prompt_tokens":`, u.Prompt}, {`,"completion_tokens":`, u.Completion},
		{`,"total_tokens":`, u.Prompt + u.Completion},
		{`,"prompt_tokens_details":{"cached_tokens":`, u.Cached},
		{`,"direct_tokens":`, u.Direct}, {`,"recomputed_tokens":`, u.Recomputed},
	} {
		b = append(b, f.name...)
		b = strconv.AppendUint(b, uint64(f.value), 10)
	}
	return append(b, "}}"...)
}

func quote(s string) string { return string(appendQuoted(nil, s)) }

const hex = "0123456789abcdef"

// appendQuoted appends s as a JSON string. Bytes that are no UTF-8 become the
// replacement character.
func appendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	plain := 0 // s[plain:i] needs no escape
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			if r, size := utf8.DecodeRuneInString(s[i:]); r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
			b = append(append(b, s[plain:i]...), `\ufffd`...)
		} else if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		} else {
			b = append(b, s[plain:i]...)
			switch c {
			case '"', '\\':
				b = append(b, '\\', c)
			case '\n':
				b = append(b, '\\', 'n')
			default:
				b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			}
		}
		i++
		plain = i
	}
	return append(append(b, s[plain:]...), '"')
}

// whole is the answer of a request that did not ask for a stream.
func whole(kind, handoffID, model string, created int64, text, finish string, u orchestrator.Usage) []byte {
	k := kinds[kind]
	b := append([]byte(nil), opening(k.whole, k.id+handoffID, model, created)...)
	if kind == kindChat {
		b = append(b, `[{"index":0,"message":{"role":"assistant","content":`...)
		b = appendQuoted(b, text)
		b = append(b, `,"refusal":null}`...)
	} else {
		b = append(b, `[{"index":0,"text":`...)
		b = appendQuoted(b, text)
	}
	b = append(b, `,"logprobs":null,"finish_reason":`...)
	b = appendQuoted(b, finish)
	b = append(b, `}],"usage":`...)
	b = appendUsage(b, u)
	return append(b, "}\n"...)
}
