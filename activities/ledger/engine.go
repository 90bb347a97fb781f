package ledger

import (
	"math"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
)

// Role is what an engine does.
type Role string

const (
	RolePrefill Role = "prefill"
	RoleDecode  Role = "decode"
	RoleBoth    Role = "both"
)

// Prefills says whether the role can be P.
func (r Role) Prefills() bool { return r == RolePrefill || r == RoleBoth }

// Decodes says whether the role can be D.
func (r Role) Decodes() bool { return r == RoleDecode || r == RoleBoth }

// Engine is one registration. ProcessIncarnation is the engine process's life,
// NodeIncarnation that of the transferd beside it, which plans name.
type Engine struct {
	ID                     handoff.EngineID    `json:"id"`
	Role                   Role                `json:"role"`
	Model                  string              `json:"model"`
	Revision               string              `json:"revision"`
	Layout                 []byte              `json:"layout"`              // fingerprint
	Described              []byte              `json:"described,omitempty"` // the layout in full; none: only an equal fingerprint can be paired
	Node                   handoff.NodeID      `json:"node"`
	NodeIncarnation        handoff.Incarnation `json:"node_incarnation,string"`
	ProcessIncarnation     handoff.Incarnation `json:"process_incarnation,string"`
	Address                string              `json:"address"`                 // the engine's own
	Control                string              `json:"control"`                 // its transferd's, for orders
	Peer                   string              `json:"peer"`                    // its transferd's, for bytes
	PeerProtocol           uint32              `json:"peer_protocol,omitempty"` // that its transferd speaks; P's and D's must be equal where both tell
	Blocks                 uint32              `json:"blocks"`
	BlockTokens            uint32              `json:"block_tokens"`
	MaxTokens              uint32              `json:"max_tokens"`                // context length
	PrefillTokensPerSecond float64             `json:"prefill_tokens_per_second"` // measured; 0: unknown
	Tokenizes              bool                `json:"tokenizes,omitempty"`       // its prompts are counted by itself
	Resumes                bool                `json:"resumes,omitempty"`         // rebuilds an answer's state from its tokens (engine.Sampling.Drawn)
	Cordoned               bool                `json:"cordoned"`                  // takes nothing new
	Load                   *Load               `json:"load,omitempty"`            // nil: unknown, never idle
}

// Load is what an engine measured when it registered.
type Load struct {
	BlocksFree   uint32 `json:"blocks_free"`
	Running      uint32 `json:"running"`
	Waiting      uint32 `json:"waiting"`
	QueuedTokens uint64 `json:"queued_tokens"` // prompt tokens accepted, not yet computed
}

// Registered is an engine as the ledger sees it. Age counts from the last
// Register; Used and Promises are the ledger's own account; Built is false
// while Reserve would refuse for want of a Rebuild.
type Registered struct {
	Engine
	Age      time.Duration
	Used     uint32
	Promises uint32
	Built    bool
}

// Validate refuses a registration with a missing or oversized field.
func (e Engine) Validate() error {
	if err := handoff.ValidateID("engine", string(e.ID)); err != nil {
		return err
	}
	if err := handoff.ValidateID("node", string(e.Node)); err != nil {
		return err
	}
	if !e.Role.Prefills() && !e.Role.Decodes() {
		return handoff.Errorf(handoff.CodeInvalid, "role %q", string(e.Role))
	}
	if e.NodeIncarnation == 0 || e.ProcessIncarnation == 0 {
		return handoff.Errorf(handoff.CodeInvalid, "incarnation is zero")
	}
	if err := e.validateTexts(); err != nil {
		return err
	}
	if err := blocks("blocks", e.Blocks); err != nil {
		return err
	}
	if e.BlockTokens == 0 || e.MaxTokens == 0 {
		return handoff.Errorf(handoff.CodeInvalid, "block of %d tokens, context of %d", e.BlockTokens, e.MaxTokens)
	}
	if r := e.PrefillTokensPerSecond; r < 0 || math.IsNaN(r) || math.IsInf(r, 0) {
		return handoff.Errorf(handoff.CodeInvalid, "prefill rate is %v", r)
	}
	return nil
}

func (e Engine) validateTexts() error {
	for _, f := range []struct {
		field, text string
		least, most int
	}{
		{"model", e.Model, 1, handoff.MaxNameBytes},
		{"revision", e.Revision, 0, handoff.MaxNameBytes},
		{"layout", string(e.Layout), 0, MaxLayoutBytes},
		{"described layout", string(e.Described), 0, rpc.MaxLayoutBytes},
		{"address", e.Address, 1, MaxAddressBytes},
		{"control", e.Control, 1, MaxAddressBytes},
		{"peer", e.Peer, 0, MaxAddressBytes},
	} {
		if err := bounded(f.field, f.text, f.least, f.most); err != nil {
			return err
		}
	}
	return nil
}

// ValidateRegistration checks an engine and how long its registration stands.
func ValidateRegistration(e Engine, ttl time.Duration) error {
	if err := e.Validate(); err != nil {
		return err
	}
	return within("registration", ttl, TTLMin, MarkMax)
}
