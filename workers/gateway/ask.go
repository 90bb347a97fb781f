package gateway

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/access"
	"github.com/surehand/surehand/workers/orchestrator"
)

// Kinds of answer.
const (
	kindText     = "text"
	kindChat     = "chat"
	kindResponse = "response"
)

// ask is one request as the client meant it, whatever surface it came by.
type ask struct {
	kind        string
	model       string
	messages    []message // of a chat
	prompt      string    // of a text
	maxTokens   uint32    // 0: not said
	temperature float64
	topP        float64
	seed        *uint64
	stop        []string

	// How the answer is wanted, not what it is.
	stream, usage bool
	tenant, key   string
	by            access.Caller
	instructions  string            // of a response
	background    bool              // its client asks for it later
	resume        string            // go on after D's death
	journal       bool              // keep delivered tokens for a client that comes back
	nameless      bool              // its client learns its id with the first token
	from          orchestrator.From // where it stopped, when it does
	deadline      time.Duration
	prefill       string
	decode        string
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

func newAsk(kind string) *ask {
	return &ask{kind: kind, temperature: DefaultTemperature, topP: DefaultTopP}
}

// check refuses what no engine should ever see.
func (a *ask) check() error {
	switch {
	case a.model == "":
		return refuse("model", "name a model; GET /v1/models lists them")
	case a.kind == kindChat && len(a.messages) == 0:
		return refuse("messages", "give at least one message")
	case a.kind == kindResponse && len(a.messages) == 0:
		return refuse("input", "the input is empty")
	case len(a.messages) > MaxMessages:
		return refuse("messages", "%d messages, the limit is %d", len(a.messages), MaxMessages)
	case a.kind == kindText && a.prompt == "":
		return refuse("prompt", "the prompt is empty")
	case !between(a.temperature, 0, maxTemperature):
		return refuse("temperature", "temperature must be between 0 and %g", maxTemperature)
	case !between(a.topP, math.SmallestNonzeroFloat64, 1):
		return refuse("top_p", "top_p must be above 0 and at most 1")
	case len(a.stop) > MaxStops:
		return refuse("stop", "%d stop strings, the limit is %d", len(a.stop), MaxStops)
	case a.deadline < 0 || a.deadline > maxDeadline:
		return refuse("deadline", "a deadline must be at most %s", maxDeadline)
	}
	for _, s := range a.stop {
		if s == "" || len(s) > MaxStopBytes {
			return refuse("stop", "a stop string has %d bytes, want 1 to %d", len(s), MaxStopBytes)
		}
	}
	return a.checkNames()
}

// between is false for NaN.
func between(x, low, high float64) bool { return x >= low && x <= high }

func (a *ask) checkNames() error {
	if err := handoff.ValidateID("tenant", a.tenant); err != nil {
		return &refusal{cause: handoff.Errorf(handoff.CodeInvalid, "%s", asRefusal(err).cause.Detail), param: "tenant"}
	}
	if len(a.key) > MaxKeyBytes || !printable(a.key) {
		return refuse("Idempotency-Key", "an idempotency key is at most %d printable ASCII characters", MaxKeyBytes)
	}
	for _, pin := range []struct{ name, value string }{{"prefill", a.prefill}, {"decode", a.decode}} {
		if len(pin.value) > MaxKeyBytes || !printable(pin.value) {
			return refuse(pin.name, "%s names no engine", pin.name)
		}
	}
	return nil
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < '!' || s[i] > '~' {
			return false
		}
	}
	return true
}

// request fits the ask to its model and makes what the orchestrator takes.
func (a *ask) request(m orchestrator.Model, t counted) (orchestrator.Request, error) {
	if err := a.bounded(len(t.prompt), a.field()); err != nil {
		return orchestrator.Request{}, err
	}
	most, err := a.fit(t.length(), a.field(), m)
	if err != nil {
		return orchestrator.Request{}, err
	}
	seed := rand.Uint64() // joined submits of one key share the first one's
	if a.seed != nil {
		seed = *a.seed
	}
	return orchestrator.Request{
		Tenant: a.tenant, Salt: a.by.Salt, Key: a.key, Model: a.model, Prompt: []byte(t.prompt), Tokens: t.tokens,
		Sampling: orchestrator.Sampling{MaxTokens: most, Temperature: a.temperature, TopP: a.topP, Seed: seed, Stop: a.stop},
		Journal:  a.journal, Resume: a.resume, Nameless: a.nameless, Kind: a.kind, From: a.from,
		Deadline: a.deadline, Prefill: a.prefill, Decode: a.decode, Body: a.digest(),
	}, nil
}

// field is where the client put what it asks.
func (a *ask) field() string {
	if a.kind != kindText {
		return "messages"
	}
	return "prompt"
}

// bounded is within the gateway's own limit of a prompt and the tenant's.
func (a *ask) bounded(bytes int, field string) error {
	most := MaxPromptBytes
	if own := a.by.Limits.MaxPromptBytes; own > 0 {
		most = min(most, own)
	}
	if bytes > most {
		return &refusal{cause: handoff.Errorf(handoff.CodeTooLarge, "the prompt has %d bytes, the limit is %d", bytes, most), param: field}
	}
	return nil
}

// fit gives the tokens to generate: those asked for, or the default cut to
// what the context has left. Model.MaxTokens of 0 is an unknown context.
func (a *ask) fit(prompt uint64, field string, m orchestrator.Model) (uint32, error) {
	want := uint64(a.maxTokens)
	if want == 0 {
		want = DefaultMaxTokens
	}
	if m.MaxTokens == 0 {
		return uint32(want), nil
	}
	context := uint64(m.MaxTokens)
	tooLong := func(param string) error {
		r := refuse(param, "the model's context is %d tokens; the prompt has %d and %d are to be generated", context, prompt, want)
		r.name = "context_length_exceeded"
		return r
	}
	switch {
	case prompt >= context:
		return 0, tooLong(field)
	case prompt+want <= context:
		return uint32(want), nil
	case a.maxTokens == 0:
		return uint32(context - prompt), nil
	}
	return 0, tooLong("max_tokens")
}

// canonical holds the fields that say what is asked. How the answer is to be
// delivered (stream, usage), where (pins) and by when stay out: a retry may
// differ in them and is still the same request. The order is fixed for ever:
// the digest is compared across gateways and releases.
type canonical struct {
	Version     int       `json:"v"`
	Kind        string    `json:"kind"`
	Model       string    `json:"model"`
	Prompt      string    `json:"prompt,omitempty"`
	Messages    []message `json:"messages,omitempty"`
	MaxTokens   uint32    `json:"max_tokens"`
	Temperature float64   `json:"temperature"`
	TopP        float64   `json:"top_p"`
	Seed        *uint64   `json:"seed"`
	Stop        []string  `json:"stop"`
}

const canonicalVersion = 1

// digest is SHA-256 of the canonical JSON, for the key's window (S13).
func (a *ask) digest() handoff.Digest {
	stop := a.stop
	if stop == nil {
		stop = []string{}
	}
	text, err := json.Marshal(canonical{canonicalVersion, a.kind, a.model, a.prompt, a.messages, a.maxTokens, a.temperature, a.topP, a.seed, stop})
	if err != nil { // check has refused NaN and infinity, which alone do not encode
		panic(fmt.Sprintf("encode a canonical request: %v", err))
	}
	return sha256.Sum256(text)
}
