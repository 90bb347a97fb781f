package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/surehand/surehand/e2e/peers/fake"
	"github.com/surehand/surehand/e2e/traffic"
)

// request is one request of a load.
type request struct {
	prompt, tokens int
	key            string
	same           bool // as every other request that is the same
	onPiece        func(int)
}

const completions = "/v1/completions"

var (
	words = strings.Repeat("abc ", 64<<10)
	asked atomic.Int64
)

// body of one request: no two prompts are the same. A router is given nothing
// that it does not need.
func (q request) body(tokens int, stream bool, extra string) []byte {
	var number int64
	if !q.same {
		number = asked.Add(1)
	}
	return fmt.Appendf(nil, `{"model":%q,"prompt":"%d %s","max_tokens":%d,"stream":%v%s}`,
		fake.Model, number, words[:min(len(words), 4*q.prompt)], tokens, stream, extra)
}

// send asks one side and reads the answer to its end.
func (s *side) send(ctx context.Context, q request) traffic.Answer {
	switch {
	case s.client != nil:
		return s.client.Stream(ctx, completions, q.body(q.tokens, true, ""), map[string]string{"Idempotency-Key": q.key}, q.onPiece)
	case s.kind == fake.SGLang:
		return s.bootstrap(ctx, q)
	}
	return s.pull(ctx, q)
}

// floor keeps connections to the engines.
var floor = &http.Client{Transport: &http.Transport{MaxIdleConns: 1 << 14, MaxIdleConnsPerHost: 1 << 14, DisableCompression: true}}

func toEngine(e *Engine) *traffic.Client { return traffic.NewClientWith(e.URL, floor) }

// pull plays a router of vLLM's NIXL hand-off: P, then D with what P answered.
func (s *side) pull(ctx context.Context, q request) (out traffic.Answer) {
	began := time.Now()
	const wanted = `,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`
	text, err := post(ctx, s.p.URL+completions, q.body(1, false, wanted))
	var said struct {
		KV json.RawMessage `json:"kv_transfer_params"`
	}
	if err == nil {
		err = json.Unmarshal(text, &said)
	}
	if err != nil {
		out.Broken = fmt.Errorf("P: %w", err)
		return out
	}
	before := time.Since(began)
	out = toEngine(s.d).Stream(ctx, completions, q.body(q.tokens, true, `,"kv_transfer_params":`+string(said.KV)), nil, q.onPiece)
	out.FirstToken += before
	out.Total += before
	return out
}

// bootstrap plays a router of SGLang's: both sides at once, named by a room.
func (s *side) bootstrap(ctx context.Context, q request) traffic.Answer {
	room := fmt.Sprintf(`,"bootstrap_host":"127.0.0.1","bootstrap_port":%s,"bootstrap_room":%d`, port(s.p.Side), rand.Int64())
	var both sync.WaitGroup
	both.Go(func() { _, _ = post(ctx, s.p.URL+completions, q.body(1, true, room)) }) // D's answer tells how it went
	defer both.Wait()
	return toEngine(s.d).Stream(ctx, completions, q.body(q.tokens, true, room), nil, q.onPiece)
}

func post(ctx context.Context, url string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := floor.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	return text, err
}
