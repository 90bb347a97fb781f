// Package orchestrator runs handoffs: it claims the key, places, takes the head
// start, starts the workflow, reads the tokens and closes what is left. It holds
// the Temporal worker and the live streams of its process; a gateway in front of
// it only speaks HTTP or gRPC.
package orchestrator

import (
	"context"
	"time"

	"github.com/surehand/surehand/activities/engine"
	submitv1 "github.com/surehand/surehand/contracts/gen/surehand/submit/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// Request is one validated submit.
type Request struct {
	Tenant   string // [a-z0-9._-]
	Salt     string // of the tenant's prefix caches; empty: its name
	Key      string // idempotency key as the client sent it; empty: a fresh handoff
	Model    string
	Prompt   []byte // the model's input bytes; never logged, never in a history
	Tokens   uint32 // of the prompt, as Tokenize counted them; 0: as Config.CountTokens does
	Sampling Sampling
	Deadline time.Duration // of the first token; zero: the default
	Prefill  string        // engine ids chosen by the caller; empty: placed
	Decode   string
	Body     handoff.Digest // of the canonical request, for the key's window (S13)
	Resume   string         // steps.ResumeReplay: go on after D's death; journals too
	Journal  bool           // keep delivered tokens for a while, for a client that comes back
	Kind     string         // of the surface, told again to a client that comes back
	From     From           // where the client stopped that comes back with its key
	// Once: the answer is not kept for who asks for it again, unless by its key.
	Once bool
	// Nameless: the client is told no id before the first token. Without a key and a
	// journal nobody can come back for it then.
	Nameless bool

	attach bool // nobody asks anew: what is over stays over
}

// From is where a client stopped; the zero value is the beginning. Epoch is of
// the last token that it has.
type From struct {
	Position uint32
	Epoch    handoff.Epoch
}

// Sampling is how the answer is drawn.
type Sampling struct {
	MaxTokens   uint32
	Temperature float64 // 0: greedy
	TopP        float64 // 0 or 1: off
	Seed        uint64
	Stop        []string
}

// Usage counts tokens; how each prompt token's state came to D is told apart (S12).
type Usage struct {
	Prompt, Completion, Direct, Cached, Recomputed uint32
}

// Event is one thing that a client is told. Exactly one terminal event
// (Finish set, or Err set) ends every stream.
type Event struct {
	Position uint32 // of the first token in Text
	Tokens   uint32
	Text     string
	Epoch    handoff.Epoch // whose attempt brought it
	Finish   string        // stop or length; set on the last event of a whole stream
	Usage    Usage         // with Finish
	Err      *handoff.Error
	// Resumed is a resume record: what follows was sampled by Epoch, behind what
	// is there. It brings nothing else.
	Resumed *steps.Resumed
}

// Terminal says whether e ends its stream.
func (e Event) Terminal() bool { return e.Finish != "" || e.Err != nil }

// Follower reads one handoff's stream from its first token on. When the last
// follower of an unfinished handoff closes, the handoff is cancelled.
type Follower interface {
	Handoff() string // public id
	Joined() bool    // an earlier submit of the same key, here or elsewhere, held it
	// Next waits for the next event; after the terminal one it gives io.EOF.
	Next(ctx context.Context) (Event, error)
	Close()
}

// Attached is what a client that came back is told of the stream before its events.
type Attached struct {
	Follower
	Model, Kind string
	Created     int64 // unix seconds
}

// Model is what can be asked for.
type Model struct {
	Name, Revision string
	MaxTokens      uint32
	Tokenizes      bool // prompts are made and counted by Tokenize
}

// Front is what a gateway needs of the orchestrator.
type Front interface {
	Submit(ctx context.Context, r Request) (Follower, error)
	// Attach follows a handoff that was submitted before, from where its client
	// stopped. CodeGone when that is not held anywhere.
	Attach(ctx context.Context, tenant, id string, from From) (Attached, error)
	// Follow serves another gateway that holds a client of a handoff read here.
	Follow(ctx context.Context, tenant, id string) (Follower, error)
	Get(ctx context.Context, tenant, id string) (*submitv1.Handoff, error)
	// Cancel ends a handoff directly and says whether that was before its commit.
	Cancel(ctx context.Context, tenant, id string) (beforeCommit bool, err error)
	List(ctx context.Context, tenant, status string, limit int) ([]*submitv1.Handoff, error)
	Models(ctx context.Context) ([]Model, error)
	// Tokenize makes and counts a prompt as the model's engines do.
	Tokenize(ctx context.Context, m Model, t engine.Text) (engine.Tokenized, error)
	// Ready is nil when a request could be served now; else what is missing.
	Ready(ctx context.Context) error
	// GiveUp answers rule 5(c) for a stream read by this very process.
	GiveUp(ctx context.Context, reader handoff.Reader, a handoff.Attempt) (bool, error)
}
