// Package engine is the port through which the orchestrator asks a serving
// engine for work: reserve at D, prefill at P, the tokens of a committed attempt
// from D, and cancel. Adapters, named after what they speak to, live beside it.
//
// # Errors
//
// Every method returns a *handoff.Error, or nil. Its code says what the caller
// may do (handoff.Code.Advice). CodeUnavailable means that the result is
// unknown: the operation may have been done, will be or will not. Each method
// is safe to repeat under the same plan, and that is how the result is learnt.
//
// # Idempotence
//
// Everything is keyed by the plan's attempt (handoff, epoch, nonce). A repeat
// with the same plan has no second effect and answers the present state; a
// repeat with another plan, another body digest included, is CodeConflict. An
// attempt that is over stays over: CodeClosed, CodeAborted or its cause.
package engine

import (
	"context"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
)

// Role is what an engine offers.
type Role uint8

// Roles.
const (
	RolePrefill Role = 1
	RoleDecode  Role = 2
	RoleBoth    Role = RolePrefill | RoleDecode
)

// Has says whether r offers all of q.
func (r Role) Has(q Role) bool { return r&q == q }

func (r Role) String() string {
	switch r {
	case RolePrefill:
		return "prefill"
	case RoleDecode:
		return "decode"
	case RoleBoth:
		return "both"
	}
	return "none"
}

// Description is what an engine says of itself now. Fields that an adapter
// cannot learn are zero, which means unknown, never idle.
type Description struct {
	Engine                 handoff.EngineID
	Role                   Role
	Model                  string
	Revision               string
	Layout                 handoff.Digest
	Address                string // of the engine itself
	Process                handoff.Incarnation
	Node                   handoff.NodeID // of the transferd beside it, its incarnation and addresses
	Incarnation            handoff.Incarnation
	Control                string
	Peer                   string
	BlockTokens            uint32
	Blocks, BlocksFree     uint32
	Running, Waiting       uint32
	ContextTokens          uint32 // prompt and answer together
	TargetsHeld            uint32 // attempts that hold memory
	SourcesHeld            uint32
	PrefillTokensPerSecond float64
	Tokenizes              bool // its prompts are counted by Tokenizer
}

// Sampling is how tokens are drawn.
type Sampling struct {
	Temperature float64 // 0: greedy
	TopP        float64 // 0 or 1: off
	Seed        uint64
	MaxTokens   uint32 // at least 1
	Stop        []string
	// Drawn is how many tokens of this answer were drawn before, by another
	// attempt: the draws go on behind them, as one run of the seed would.
	Drawn uint32
}

// Reservation asks D for room.
type Reservation struct {
	Plan         handoff.Plan
	PromptTokens uint32
	Prompt       []byte   // for engines that allocate by the prompt's tokens; never logged
	Sampling     Sampling // MaxTokens is the growth to hold room for; Stop ends the decode
	TenantSalt   string
	Lease        time.Duration  // 0: the engine's default
	Revision     string         // expected; empty: any
	Layout       handoff.Digest // expected of P; zero: any
}

// Reserved is D's answer.
type Reserved struct {
	Token  handoff.Token
	Blocks uint32
}

// Prefill asks P for a prompt's state.
type Prefill struct {
	Plan       handoff.Plan
	Prompt     []byte // never logged
	Answered   []byte // the text of Sampling.Drawn tokens that follow it; never logged
	Sampling   Sampling
	TenantSalt string // prefixes are shared under the same salt only; empty: not at all
	Lease      time.Duration
}

// Opened says under which capability the state may be read, before it is whole.
type Opened struct {
	Capability    []byte
	SourceAddress string
	PromptTokens  uint32
}

// Sealed says that the whole state is there and P's transferd has acknowledged it.
type Sealed struct {
	PromptTokens uint32
	CachedTokens uint32 // of a prefix that P had computed before
	Compute      time.Duration
}

// Finish reasons.
const (
	FinishStop   = "stop"
	FinishLength = "length"
)

// DecodeEvent is a piece of the answer.
type DecodeEvent struct {
	Position uint32 // of its first token
	Text     []byte // whole UTF-8 characters; never logged
	Tokens   uint32
	Finish   string // set on the last
	Counts   Counts // set on the last
}

// Counts say how each prompt token's state came to D (S12).
type Counts struct{ Direct, Cached, Recomputed, Completion uint32 }

// Engine is one serving engine.
type Engine interface {
	// Describe reads what the engine says of itself now.
	Describe(ctx context.Context) (Description, error)

	// Reserve holds room for the whole request at D, opens the target and
	// answers its fencing token. Nothing is held when it is refused:
	// CodeCapacity, CodeMismatch (before anything else is looked at),
	// CodeStaleIncarnation, CodeStaleEpoch, CodeConflict, CodeTooLarge. A
	// repeat answers the same token, or CodeClosed or CodeAborted once it is over.
	Reserve(ctx context.Context, r Reservation) (Reserved, error)

	// Prefill computes a prompt at P and returns once its state is sealed.
	// opened is called once, before the compute; progress, which may be nil,
	// with the number of tokens whose state is there. A repeat joins the run
	// and is told from the beginning. When ctx ends the run goes on until its
	// lease ends: Cancel stops it. A run that cannot seal gives the cause:
	// CodeClosed, CodeCancelled, CodeLease, CodeStaleIncarnation, CodeEngine.
	Prefill(ctx context.Context, p Prefill, opened func(Opened), progress func(tokens uint32)) (Sealed, error)

	// Attach calls each with the events of an attempt from a position on,
	// waiting for its commit, and returns nil after the last one, which has
	// Finish. from is 0 or where the next event of an earlier Attach would
	// stand; another is CodeInvalid. An error of each ends the reading and is
	// returned as it is. The decode does not depend on its readers: leases end
	// it. CodeClosed, CodeAborted or their cause when the attempt is over
	// without its text, CodeStaleToken for another token, CodeGone when its text
	// is no longer held, CodeIntegrity when the landed state is damaged.
	Attach(ctx context.Context, plan handoff.Plan, token handoff.Token, from uint32, each func(DecodeEvent) error) error

	// Cancel stops computing for an attempt at once, on either side, and leaves
	// a mark so that a later Reserve or Prefill of it is refused. It ends a
	// committed decode too: it has the force of Release, so who cannot record
	// that must not send it (rule 4). Memory is freed only as the engine's
	// transferd says. known is false when the engine never heard of it.
	Cancel(ctx context.Context, plan handoff.Plan) (known bool, err error)
}

// Text is what a client asks: a prompt, or the messages of a chat.
type Text struct {
	Prompt   []byte
	Messages []Message
}

// Message is one turn of a chat.
type Message struct{ Role, Content string }

// Tokenized is the model's input and its length.
type Tokenized struct {
	Prompt []byte // never logged
	Tokens uint32
}

// Tokenizer is an engine that counts, and makes the prompt of a chat, by the
// model's own tokenizer and template. It keeps nothing; a repeat answers the same.
type Tokenizer interface {
	Tokenize(ctx context.Context, t Text) (Tokenized, error)
}

// Directory finds an engine by the address that a plan's route names.
type Directory interface {
	Engine(address string) (Engine, error)
}
