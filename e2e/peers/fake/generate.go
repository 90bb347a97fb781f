package fake

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// DefaultTokens are generated for who does not say how many.
const DefaultTokens = 16

// body is what is read of a request.
type body struct {
	Model     string          `json:"model"`
	Prompt    json.RawMessage `json:"prompt"`
	MaxTokens *int            `json:"max_tokens"`
	Stream    bool            `json:"stream"`
	KV        *transfer       `json:"kv_transfer_params"`
	Host      string          `json:"bootstrap_host"`
	Port      json.RawMessage `json:"bootstrap_port"`
	Room      json.RawMessage `json:"bootstrap_room"`
}

type transfer struct {
	RemoteDecode  bool    `json:"do_remote_decode"`
	RemotePrefill bool    `json:"do_remote_prefill"`
	Blocks        []int64 `json:"remote_block_ids"`
	Host          string  `json:"remote_host"`
	Port          int     `json:"remote_port"`
}

func (b *body) promptTokens() int { return len(b.Prompt) / 4 }

func (b *body) tokens() int {
	if b.MaxTokens == nil {
		return DefaultTokens
	}
	return *b.MaxTokens
}

// room names SGLang's hand-off; empty: there is none.
func (b *body) room() string {
	if s := string(b.Room); s != "null" {
		return strings.Trim(s, `"`)
	}
	return ""
}

func (e *Engine) generate(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var b body
	if err := json.Unmarshal(raw, &b); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	if b.Model != Model {
		e.seen.refused.Add(1)
		refuse(w, http.StatusNotFound, "no such model")
		return
	}
	if n := e.running.Add(1); e.MaxRunning > 0 && n > int64(e.MaxRunning) {
		e.running.Add(-1)
		e.seen.refused.Add(1)
		refuse(w, http.StatusServiceUnavailable, "engine at capacity") // before the engine: nobody tells P
		return
	}
	defer e.running.Add(-1)
	whole := false
	switch {
	case b.room() != "" && e.Side != "":
		e.seen.prefills.Add(1)
		whole = e.sglangPrefill(w, r, &b)
	case b.room() != "":
		e.seen.decodes.Add(1)
		at := net.JoinHostPort(b.Host, strings.Trim(string(b.Port), `"`))
		if whole = e.side.wait(r.Context(), at, b.room()); whole {
			whole = e.answer(w, r, &b, b.tokens())
		} else if r.Context().Err() == nil {
			refuse(w, http.StatusInternalServerError, "KV transfer failed")
		}
	case b.KV != nil && b.KV.RemoteDecode:
		e.seen.prefills.Add(1)
		whole = e.prefill(w, r, &b)
	case b.KV != nil && b.KV.RemotePrefill:
		e.seen.decodes.Add(1)
		e.fetched(b.KV)
		whole = e.answer(w, r, &b, b.tokens())
	default:
		e.seen.locals.Add(1)
		whole = e.compute(r.Context(), &b) && e.answer(w, r, &b, b.tokens())
	}
	if whole {
		e.seen.whole.Add(1)
	} else {
		e.seen.aborted.Add(1)
	}
}

// pause waits; false when the client left first.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (e *Engine) compute(ctx context.Context, b *body) bool {
	return pause(ctx, time.Duration(b.promptTokens())*e.pace.Load().PrefillPer1k/1000)
}

// blockTokens of the imitated cache: how long the list of blocks is.
const blockTokens = 16

// prefill answers as vLLM's P does, with where the state is to be fetched.
func (e *Engine) prefill(w http.ResponseWriter, r *http.Request, b *body) bool {
	if !e.compute(r.Context(), b) {
		return false
	}
	id := e.hold()
	host, port, err := net.SplitHostPort(e.Side)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "P has no side channel")
		return false
	}
	out := fmt.Appendf(nil, `{"id":"cmpl-%d","object":"text_completion","created":1,"model":%q,"choices":[{"index":0,"text":" w0","logprobs":null,"finish_reason":"length","stop_reason":null}],"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":1},"kv_transfer_params":{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[%d`,
		id, Model, b.promptTokens(), b.promptTokens()+1, id)
	for i := range b.promptTokens() / blockTokens {
		out = strconv.AppendInt(append(out, ','), int64(1000+i), 10)
	}
	out = fmt.Appendf(out, `],"remote_engine_id":"%s-%s","remote_request_id":"cmpl-%d","remote_host":%q,"remote_port":%s,"tp_size":1}}`, e.Name, e.Revision, id, host, port)
	w.Header().Set("Content-Type", "application/json")
	_, err = w.Write(out)
	return err == nil
}

// fetched tells P, as D's connector does.
func (e *Engine) fetched(kv *transfer) {
	if len(kv.Blocks) > 0 {
		e.side.pull(net.JoinHostPort(kv.Host, strconv.Itoa(kv.Port)), kv.Blocks[0])
	}
}

// sglangPrefill lets D begin, and answers one token that nobody reads.
func (e *Engine) sglangPrefill(w http.ResponseWriter, r *http.Request, b *body) bool {
	ok := e.compute(r.Context(), b)
	e.side.ready(b.room(), ok)
	return ok && e.answer(w, r, b, 1)
}

// answer streams numbered tokens, each in one write, as engines do.
func (e *Engine) answer(w http.ResponseWriter, r *http.Request, b *body, tokens int) bool {
	step := e.pace.Load().Step
	flush := w.(http.Flusher).Flush
	if b.Stream {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	} else {
		w.Header().Set("Content-Type", "application/json")
	}
	pre := fmt.Sprintf(`{"id":"cmpl-%d","object":"text_completion","created":%d,"model":%q,"choices":[{"index":0,"text":"`, e.id.Add(1), time.Now().Unix(), Model)
	usage := fmt.Sprintf(`"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}`, b.promptTokens(), b.promptTokens()+tokens, tokens)
	var buf []byte
	if !b.Stream {
		buf = append(buf, pre...)
	}
	due := time.Now()
	for i := range tokens {
		if i > 0 && step > 0 {
			due = due.Add(step)
			if !pause(r.Context(), time.Until(due)) {
				return false
			}
		}
		if !b.Stream {
			buf = strconv.AppendInt(append(buf, " w"...), int64(i), 10)
			continue
		}
		buf = event(buf[:0], pre, i, i == tokens-1)
		if _, err := w.Write(buf); err != nil || r.Context().Err() != nil {
			return false
		}
		flush()
		if i == 0 {
			if !e.passes(r.Context()) {
				return false
			}
			due = time.Now()
		}
	}
	if !b.Stream {
		_, err := w.Write(append(buf, `","logprobs":null,"finish_reason":"length"}],`+usage+`}`...))
		return err == nil
	}
	return true
}

// event is one token; the last says the end too.
func event(buf []byte, pre string, i int, last bool) []byte {
	buf = append(append(append(buf, "data: "...), pre...), " w"...)
	buf = append(strconv.AppendInt(buf, int64(i), 10), `","logprobs":null,"finish_reason":`...)
	if !last {
		return append(buf, "null,\"stop_reason\":null}]}\n\n"...)
	}
	return append(buf, "\"length\",\"stop_reason\":null}]}\n\ndata: [DONE]\n\n"...)
}
