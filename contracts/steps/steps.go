// Package steps is the contract between the workflow, which decides, and the
// activities, which act: name, input, output and undo of each step. Payloads
// are small, hold no prompt text and are what the history shows.
package steps

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
)

// Undo names the inverse of each step, or why there is none.
var Undo = map[handoff.Step]string{
	handoff.StepReserve:      string(handoff.StepUndoReserve),
	handoff.StepPrefill:      string(handoff.StepUndoPrefill),
	handoff.StepTransfer:     string(handoff.StepUndoTransfer),
	handoff.StepCommit:       string(handoff.StepUndoTransfer) + " as a release: an undo never takes back a commit (rule 4)",
	handoff.StepUndoTransfer: "none: it is an undo",
	handoff.StepUndoPrefill:  "none: it is an undo",
	handoff.StepUndoReserve:  "none: it is an undo",
	handoff.StepAskReader:    "none: a give-up is for good (rule 5c)",
	handoff.StepAwaitReader:  "none: the workflow only waits",
	handoff.StepPlace:        "none: a plan without operations holds nothing",
	StepWatch:                "none: it only looks",
	StepTell:                 "none: the reader takes only the newest attempt",
	StepEnd:                  "none: the reader takes the first end",
	StepSettle:               "none: a settled outcome sticks (S13)",
}

// Steps outside the protocol's table.
const (
	StepWatch  handoff.Step = "watch-decode" // does TD still hold the committed target?
	StepSettle handoff.Step = "settle"       // the ledger keeps, or frees, the idempotency key
	StepTell   handoff.Step = "tell-reader"  // name the newest planned attempt to the reader
	StepEnd    handoff.Step = "end-stream"   // tell the reader that the handoff is over
)

// Record says when the workflow ends: with the stream, or at the commit.
type Record string

const (
	RecordRequest Record = "request"
	RecordHandoff Record = "handoff"
)

// Names of the workflow, its signals, updates and queries. The end of a stream
// comes as an update, which Temporal writes down together with what follows
// from it; where an update is not to be had, as a signal.
const (
	Workflow        = "handoff"
	UpdateEnded     = "end-of-stream"
	UpdateSteer     = "steer"
	SignalEnded     = "stream-ended"
	SignalReattach  = "re-attach"
	QueryState      = "state"
	TaskQueueServe  = "surehand"
	MaxPayloadBytes = 4096
	// MaxDetailBytes bounds what a refusal says, so that payloads stay small.
	MaxDetailBytes = 512
)

// Clip bounds a detail for a payload.
func Clip(detail string) string {
	if len(detail) <= MaxDetailBytes {
		return detail
	}
	return strings.ToValidUTF8(detail[:MaxDetailBytes-3], "") + "..."
}

// Endpoint is where one seat answers.
type Endpoint struct {
	Engine  string `json:"engine"`  // gRPC of the engine
	Control string `json:"control"` // of its transferd
	Peer    string `json:"peer"`    // of its transferd
}

// Route is where the two seats of a plan answer, and D's room.
type Route struct {
	P Endpoint `json:"p"`
	D Endpoint `json:"d"`
	// Blocks the attempt needs on D, of Total.
	Blocks uint32 `json:"blocks"`
	Total  uint32 `json:"total"`
	// Why these two: placement's terms, as it wrote them.
	Why json.RawMessage `json:"why,omitempty"`
}

// Sampling without anything the client wrote: stop strings travel with the body.
type Sampling struct {
	MaxTokens   uint32  `json:"max_tokens"`
	Temperature float64 `json:"temperature,omitempty"`
	TopP        float64 `json:"top_p,omitempty"`
	Seed        uint64  `json:"seed,omitempty"`
}

// Input starts the workflow. The plan of epoch 1 and the reader stand in it (rule 2).
type Input struct {
	Tenant        string        `json:"tenant"`
	ID            string        `json:"id"`            // public handoff id; the workflow id is tenant/id
	Key           string        `json:"key,omitempty"` // hash of the idempotency key
	Model         string        `json:"model"`
	Revision      string        `json:"revision"`
	Plan          handoff.Plan  `json:"plan"`
	Route         Route         `json:"route"`
	ReaderAddress string        `json:"reader_address"`
	PromptTokens  uint32        `json:"prompt_tokens"`
	Sampling      Sampling      `json:"sampling"`
	Record        Record        `json:"record"`
	Deadline      time.Duration `json:"deadline"` // to the first token
	Decode        time.Duration `json:"decode"`   // budget of the stream after it
	Long          bool          `json:"long"`     // prefill and transfer as normal activities
	Lease         time.Duration `json:"lease"`
	Window        time.Duration `json:"window"` // of the idempotency key
	MaxEpochs     handoff.Epoch `json:"max_epochs,omitempty"`
	NoAttributes  bool          `json:"no_attributes,omitempty"` // the namespace has no search attributes of ours
	Resume        string        `json:"resume,omitempty"`        // ResumeReplay: go on after D's death under another epoch
	Pin           *Pin          `json:"pin,omitempty"`           // engines that an operator chose for the epochs to come
	Resumed       *Resumed      `json:"resumed,omitempty"`       // of an epoch that does so
	Trace         string        `json:"trace,omitempty"`         // W3C traceparent of the request; empty: it is not traced
	Asks          bool          `json:"asks,omitempty"`          // the reader is asked before what may be committed is given up; older inputs lack it
	AsksAgain     bool          `json:"asks_again,omitempty"`    // another reader that history names by then is asked as well where no other epoch follows; older inputs lack it
	Journal       bool          `json:"journal,omitempty"`       // delivered tokens are kept for a while, for clients that come back
	Nameless      bool          `json:"nameless,omitempty"`      // before its first token its client has neither key nor id to come back with; older inputs lack it
}

// StepInput is the input of every activity.
type StepInput struct {
	Request       Input              `json:"request"` // with Plan and Route of this attempt
	Hard          bool               `json:"hard,omitempty"`
	OriginalRunID string             `json:"original_run_id"` // rule 13: compared with the run that executes
	Reader        ReaderAt           `json:"reader"`          // whom history names now
	Exclude       []handoff.EngineID `json:"exclude,omitempty"`
	Outcome       *Outcome           `json:"outcome,omitempty"` // of StepSettle and StepEnd
	Token         *handoff.Token     `json:"token,omitempty"`   // of StepTell
}

// ReaderAt is a reader and where it answers.
type ReaderAt struct {
	Reader  handoff.Reader `json:"reader"`
	Address string         `json:"address"`
}

// Output is what any step gives; each fills what it knows.
type Output struct {
	Verdict      handoff.Verdict `json:"verdict,omitempty"`
	Token        *handoff.Token  `json:"token,omitempty"`
	Blocks       uint32          `json:"blocks,omitempty"`
	PromptTokens uint32          `json:"prompt_tokens,omitempty"`
	CachedTokens uint32          `json:"cached_tokens,omitempty"`
	Bytes        uint64          `json:"bytes,omitempty"`
	Pieces       uint32          `json:"pieces,omitempty"`
	Lane         string          `json:"lane,omitempty"`
	Repulled     uint32          `json:"repulled,omitempty"`
	StartMicros  int64           `json:"start_us"` // since the handoff began at its gateway, or the step's own start elsewhere
	EndMicros    int64           `json:"end_us"`
	Engine       string          `json:"engine,omitempty"`
	State        string          `json:"state,omitempty"`
	Reader       *handoff.Reader `json:"reader,omitempty"`
	Plan         *handoff.Plan   `json:"plan,omitempty"`
	Route        *Route          `json:"route,omitempty"`
	Told         bool            `json:"told,omitempty"` // StepReserve: the reader knows the attempt and its token
}

// Ended is the payload of UpdateEnded and SignalEnded: the reader's report.
type Ended struct {
	Code    string          `json:"code,omitempty"`
	Detail  string          `json:"detail,omitempty"`
	Finish  string          `json:"finish,omitempty"`
	Usage   Usage           `json:"usage"`
	Attempt handoff.Attempt `json:"attempt"`
	Reader  handoff.Reader  `json:"reader"` // who reports; another than history names decides nothing
	// Lost: the reader gave the attempt up before it delivered any of it, be there
	// tokens of an earlier epoch.
	Lost bool `json:"lost,omitempty"`
	// Resumed asks for another epoch behind the tokens that were delivered; the
	// reader delivers no more of the attempt.
	Resumed *Resumed `json:"resumed,omitempty"`
	// Since the submit, at its gateway.
	FirstToken int64 `json:"first_token_us,omitempty"`
	LastToken  int64 `json:"last_token_us,omitempty"`
}

// ResumeReplay has a stream whose D died go on: the next epoch's prompt is the
// prompt and the tokens that were delivered.
const ResumeReplay = "replay"

// Resumed is the resume record: what follows position was sampled by another
// epoch than what stands before it.
type Resumed struct {
	From     handoff.Epoch `json:"from"`     // whose decode broke
	Position uint32        `json:"position"` // of the first token of the next one
}

// Pin names engines; an empty one is placed.
type Pin struct {
	Prefill handoff.EngineID `json:"prefill,omitempty"`
	Decode  handoff.EngineID `json:"decode,omitempty"`
}

// Steer is the payload of UpdateSteer: an operator's word on the epochs to come;
// with Now the present attempt, if it is not committed, gives way to the next.
type Steer struct {
	By     string `json:"by"`
	Reason string `json:"reason"`
	Pin    Pin    `json:"pin"`
	Now    bool   `json:"now,omitempty"`
}

// Steered is its answer.
type Steered struct {
	Phase handoff.Phase `json:"phase"`
	Epoch handoff.Epoch `json:"epoch"` // the present one when it was heard
}

// Usage counts tokens by how their state came to D (S12).
type Usage struct {
	Prompt     uint32 `json:"prompt"`
	Completion uint32 `json:"completion"`
	Direct     uint32 `json:"direct"`
	Cached     uint32 `json:"cached"`
	Recomputed uint32 `json:"recomputed"`
}

// Span is one step of one epoch on the time line.
type Span struct {
	Step   handoff.Step  `json:"step"`
	Epoch  handoff.Epoch `json:"epoch"`
	Start  int64         `json:"start_us"`
	End    int64         `json:"end_us"`
	Code   string        `json:"code,omitempty"`
	Bytes  uint64        `json:"bytes,omitempty"`
	Engine string        `json:"engine,omitempty"`
}

// Outcome is the workflow's result and what the UI shows.
type Outcome struct {
	Attempt   handoff.Attempt  `json:"attempt"`
	Committed bool             `json:"committed"`
	Unproven  bool             `json:"unproven,omitempty"` // nobody could say whether it was committed: its key is spent
	Code      string           `json:"code,omitempty"`
	Detail    string           `json:"detail,omitempty"`
	Finish    string           `json:"finish,omitempty"`
	Prefill   handoff.EngineID `json:"prefill"`
	Decode    handoff.EngineID `json:"decode"`
	Usage     Usage            `json:"usage"`
	Bytes     uint64           `json:"bytes"`
	Spans     []Span           `json:"spans"`
	Parked    []string         `json:"parked,omitempty"`
}

// Sticks is handoff.Outcome's.
func (o Outcome) Sticks() bool {
	return handoff.Outcome{Committed: o.Committed, Unproven: o.Unproven, Code: EndCode(o.Code)}.Sticks()
}

// EndCode reads the code of an Outcome or of an Ended: empty is CodeNone.
func EndCode(text string) handoff.Code {
	if text == "" {
		return handoff.CodeNone
	}
	return handoff.ParseCode(text)
}

// State answers QueryState.
type State struct {
	Phase   handoff.Phase    `json:"phase"`
	Epoch   handoff.Epoch    `json:"epoch"`
	Prefill handoff.EngineID `json:"prefill"`
	Decode  handoff.EngineID `json:"decode"`
	Reader  handoff.Reader   `json:"reader"`
	Address string           `json:"address"` // of the reader
	Plan    handoff.Plan     `json:"plan"`
	Route   Route            `json:"route"`
	Spans   []Span           `json:"spans"`
	Bytes   uint64           `json:"bytes"`
	Outcome *Outcome         `json:"outcome,omitempty"`
	Input   Input            `json:"input"` // with Plan and Route of the present epoch
}
