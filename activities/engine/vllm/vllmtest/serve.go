package vllmtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

type body struct {
	Model      string          `json:"model"`
	Prompt     json.RawMessage `json:"prompt"`
	MaxTokens  *int            `json:"max_tokens"`
	Completion *int            `json:"max_completion_tokens"`
	MinTokens  int             `json:"min_tokens"`
	Stream     bool            `json:"stream"`
	ReturnIDs  bool            `json:"return_token_ids"`
	Messages   json.RawMessage `json:"messages"`
	Salt       string          `json:"cache_salt"`
	KV         *params         `json:"kv_transfer_params"`
	Logprobs   int             `json:"logprobs"`
}

type params struct {
	RemoteDecode  bool    `json:"do_remote_decode"`
	RemotePrefill bool    `json:"do_remote_prefill"`
	Blocks        [][]int `json:"remote_block_ids"`
	Host          string  `json:"remote_host"`
	Port          int     `json:"remote_port"`
	TransferID    string  `json:"transfer_id"`
	Bootstrap     string  `json:"remote_bootstrap_addr"`
}

func (e *Engine) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/completions", e.generate)
	mux.HandleFunc("POST /v1/chat/completions", e.generate)
	mux.HandleFunc("GET /metrics", e.metrics)
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"version":%q}`, e.options.Version)
	})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"root":%q,"max_model_len":%d}]}`, e.options.Model, e.options.Root, e.options.Context)
	})
	mux.HandleFunc("GET /query", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"0":{"engine_id":"mooncake-%d"}}`, e.life)
	})
	return mux
}

func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"message":%q,"type":"BadRequestError","param":null,"code":%d}}`, message, status)
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
	e.count(func(s *Seen) {
		s.Bodies = append(s.Bodies, raw)
		s.RequestIDs = append(s.RequestIDs, r.Header.Get("X-Request-Id"))
		s.Traces = append(s.Traces, r.Header.Get("traceparent"))
	})
	switch {
	case b.Model != e.options.Model:
		refuse(w, http.StatusNotFound, "no such model")
	case b.KV != nil && b.KV.RemoteDecode:
		e.prefill(w, r, b)
	default:
		e.decode(w, r, b)
	}
}

func (b body) tokens() int {
	if b.Completion != nil {
		return *b.Completion
	}
	if b.MaxTokens != nil {
		return *b.MaxTokens
	}
	return 16
}

func (e *Engine) prefill(w http.ResponseWriter, r *http.Request, b body) {
	f, o := e.now()
	e.count(func(s *Seen) { s.Prefills++ })
	if b.tokens() != 1 || b.MinTokens > 1 || b.Stream {
		refuse(w, http.StatusBadRequest, "a prefill generates one token, not streamed")
		return
	}
	if f.PrefillStatus != 0 {
		refuse(w, f.PrefillStatus, "injected")
		return
	}
	if !pass(r.Context(), f.PrefillGate) {
		e.count(func(s *Seen) { s.Aborted++ })
		return // aborted before its end: nothing is pinned
	}
	e.mu.Lock()
	e.next++
	id := e.next
	if !f.NoParams {
		e.held[id] = time.Now().Add(o.Lease)
	}
	life := e.life
	e.mu.Unlock()
	if !pass(r.Context(), f.AnswerGate) || !delay(r.Context(), f.AnswerDelay) {
		return // pinned, and nobody was told: only the lease ends it
	}
	kv := "null"
	if !f.NoParams && !o.Mooncake {
		kv = e.params(id, life, o.Push)
	}
	ids := ""
	if b.ReturnIDs {
		ids = `,"prompt_token_ids":[11,12,13]`
	}
	fmt.Fprintf(w, `{"id":"x","choices":[{"index":0,"text":" w0","finish_reason":"length"%s}],"usage":{"prompt_tokens":%d,"completion_tokens":1},"kv_transfer_params":%s}`,
		ids, len(b.Prompt)/4+1, kv)
}

func (e *Engine) params(id, life int, push bool) string {
	host, port, err := net.SplitHostPort(e.address)
	if err != nil {
		e.t.Error(err)
	}
	mode := "pull"
	if push {
		mode = "push"
	}
	return fmt.Sprintf(`{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[%d,%d]],"remote_engine_id":"e%d","remote_request_id":"cmpl-%d","remote_host":%q,"remote_port":%s,"tp_size":1,"transfer_mode":%q,"remote_blocks_expiry_time":null}`,
		id, id+1, life, id, host, port, mode)
}

// source is the P that the parameters name, nil when it is dead.
func (e *Engine) source(kv *params) (*Engine, int) {
	address, id := fmt.Sprintf("%s:%d", kv.Host, kv.Port), 0
	if kv.TransferID != "" {
		address, id = strings.TrimPrefix(kv.Bootstrap, "http://"), -1
	} else if len(kv.Blocks) > 0 && len(kv.Blocks[0]) > 0 {
		id = kv.Blocks[0][0]
	}
	p := e.net.find(address)
	if p == nil {
		return nil, 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server == nil {
		return nil, 0
	}
	if id < 0 {
		id = p.next // the fake does not keep transfer ids apart
	}
	return p, id
}

// release takes the blocks of a transfer back at P; false when they had lapsed.
// P takes every word of a transfer that it does not hold for a fetch after its end,
// also the second word of one that ended well.
func (p *Engine) release(id int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lapse(time.Now())
	_, held := p.held[id]
	delete(p.held, id)
	p.seen.Released++
	if !held {
		p.late++
	}
	return held
}

// tells has P release a transfer, at once where this D has fetched from it before.
func (e *Engine) tells(p *Engine, id int) {
	life := p.lives()
	e.mu.Lock()
	met := e.met[p] == life
	if !met {
		e.unsaid = append(e.unsaid, func() { p.release(id) })
	}
	e.mu.Unlock()
	if met {
		p.release(id)
	}
}

// steps says what an engine that idles keeps to itself.
func (e *Engine) steps() {
	e.mu.Lock()
	say := e.unsaid
	e.unsaid = nil
	e.mu.Unlock()
	for _, s := range say {
		s()
	}
}

func (e *Engine) meets(p *Engine) {
	life := p.lives()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.met[p] = life
}

func (e *Engine) lives() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.life
}

func (e *Engine) decode(w http.ResponseWriter, r *http.Request, b body) {
	f, o := e.now()
	handed := b.KV != nil && b.KV.RemotePrefill
	var p *Engine
	var id int
	if handed {
		p, id = e.source(b.KV)
	}
	if f.MaxLogprobs > 0 && b.Logprobs > f.MaxLogprobs {
		refuse(w, http.StatusBadRequest, "too many logprobs") // looked at before the engine is: nobody tells P
		return
	}
	if b.tokens() > o.Context || f.DecodeStatus == http.StatusBadRequest {
		e.count(func(s *Seen) { s.Rejected++ })
		e.steps()
		if p != nil {
			e.tells(p, id) // the connector of a refused request does
		}
		refuse(w, http.StatusBadRequest, "max_tokens is too large")
		return
	}
	if f.DecodeStatus != 0 {
		refuse(w, f.DecodeStatus, "injected") // refused before the engine: nobody tells P
		return
	}
	if !e.enter(w, r, o) {
		return
	}
	defer e.leave()
	e.count(func(s *Seen) {
		s.Decodes++
		if !handed {
			s.Locals++
		}
	})
	e.steps()
	word := "w"
	if handed {
		if p == nil {
			refuse(w, http.StatusInternalServerError, "Internal server error")
			return
		}
		if f.ErrorEvent && !b.Stream {
			refuse(w, http.StatusInternalServerError, "Internal server error")
			return
		}
		if f.ErrorEvent || f.EventStatus != 0 && b.Stream {
			e.answer(w, r, b, f, "") // the load failed, or never began, and P was not told
			return
		}
		e.meets(p)
		if !p.release(id) {
			// Another prompt's blocks by now; only P counts it.
			word = "stale"
		}
	}
	e.answer(w, r, b, f, e.prefixed(b, word))
}

// prefixed is whose tokens D answers with: what its prefix cache has goes before
// what it fetched or computed, which is kept for the next one.
func (e *Engine) prefixed(b body, word string) string {
	key := b.Salt + "\x00" + string(b.Prompt) + string(b.Messages)
	e.mu.Lock()
	defer e.mu.Unlock()
	if kept, ok := e.cached[key]; ok {
		return kept
	}
	e.cached[key] = word
	return word
}

// enter takes a place among the running, or waits, or refuses.
func (e *Engine) enter(w http.ResponseWriter, r *http.Request, o Options) bool {
	if e.queue == nil {
		return true
	}
	select {
	case e.queue <- struct{}{}:
		return true
	default:
	}
	if o.RejectOver {
		refuse(w, http.StatusServiceUnavailable, "engine at capacity")
		return false
	}
	select {
	case e.queue <- struct{}{}:
		return true
	case <-r.Context().Done():
		return false
	}
}

func (e *Engine) leave() {
	if e.queue != nil {
		<-e.queue
	}
}

func (e *Engine) answer(w http.ResponseWriter, r *http.Request, b body, f Faults, word string) {
	abort := func() { e.count(func(s *Seen) { s.Aborted++ }) }
	if !b.Stream {
		if !pass(r.Context(), f.TokenGate) || !pass(r.Context(), f.RestGate) {
			abort()
			return
		}
		var text strings.Builder
		for i := range b.tokens() {
			fmt.Fprintf(&text, " %s%d", word, i)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"x","choices":[{"index":0,"text":%q,"finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":%d}}`, text.String(), b.tokens())
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	flush := w.(http.Flusher)
	flush.Flush()
	for i := range b.tokens() {
		gate := f.TokenGate
		if i == 1 {
			gate = f.RestGate
		} else if i > 1 {
			gate = nil
		}
		if !pass(r.Context(), gate) {
			abort()
			return
		}
		if f.ErrorEvent {
			fmt.Fprint(w, `data: {"error":{"message":"prompt text here","type":"InternalServerError","code":500}}`+"\n\ndata: [DONE]\n\n")
			return
		}
		if f.EventStatus != 0 {
			fmt.Fprintf(w, `data: {"error":{"message":"injected","type":"BadRequestError","code":%d}}`+"\n\ndata: [DONE]\n\n", f.EventStatus)
			return
		}
		if f.Truncate > 0 && i == f.Truncate {
			panic(http.ErrAbortHandler)
		}
		finish := "null"
		if i == b.tokens()-1 {
			finish = `"length"`
		}
		fmt.Fprintf(w, `data: {"id":"x","choices":[{"index":0,"text":" %s%d","finish_reason":%s}]}`+"\n\n", word, i, finish)
		flush.Flush()
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

func (e *Engine) metrics(w http.ResponseWriter, _ *http.Request) {
	f, o := e.now()
	if f.MetricsStatus != 0 {
		w.WriteHeader(f.MetricsStatus)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lapse(time.Now())
	l := fmt.Sprintf(`{engine="0",model_name=%q}`, o.Model)
	fmt.Fprintf(w, "# HELP vllm:num_requests_running x\n# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running%s %d\n", l, len(e.queue))
	fmt.Fprintf(w, "vllm:num_requests_waiting%s %d\nvllm:kv_cache_usage_perc%s %g\n", l, f.Waiting, l, f.Usage)
	fmt.Fprintf(w, "vllm:e2e_request_latency_seconds_bucket{le=\"1\"} 3\nprocess_start_time_seconds %f\n", float64(e.began.UnixNano())/1e9)
	if o.Blocks > 0 {
		fmt.Fprintf(w, "vllm:cache_config_info{block_size=\"%d\",num_gpu_blocks=\"%d\",num_cpu_blocks=\"None\"} 1.0\n", o.BlockTokens, o.Blocks)
	}
	if !o.NoCounters {
		fmt.Fprintf(w, "vllm:nixl_num_kv_expired_reqs_total%s %d\nvllm:nixl_num_notifications_after_expiry_total%s %d\n", l, e.expired, l, e.late)
	}
}
