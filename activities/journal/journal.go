// Package journal is the port to what keeps delivered tokens for a while, where
// every gateway can read them: a client that lost its connection, or its
// gateway, goes on exactly where it stopped.
//
// The reader of a handoff appends each event before any client is shown it, so
// what a client has is in the journal, and no other reader's words come between:
// a journal has one writer, the reader of the highest number, and an append of
// an earlier one is refused.
//
// The store is no truth: it may lose a suffix or everything. A journal with a
// gap takes nothing more, and whoever asks for what is not there is told so
// (CodeGone); nothing is sampled again in its place. Records hold what clients
// were answered, so they are sealed as bodies are, and never logged.
package journal

import (
	"context"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
)

// Limits (S17).
const (
	// MaxBytes bounds one handoff's journal; what is over is not journalled, and
	// the stream goes on without.
	MaxBytes = 8 << 20
	// MaxRecords bounds its records.
	MaxRecords = 1 << 17
	// MaxBatch bounds the records of one call.
	MaxBatch = 256
	// TTLDefault is how long a journal outlives its last record.
	TTLDefault = time.Hour
	// TTLMax bounds it.
	TTLMax = 7 * 24 * time.Hour
)

// Name is whose journal it is.
type Name struct{ Tenant, ID string }

// Writer is the reader that appends: a run of the handoff, and its number there.
type Writer struct {
	Run    handoff.HandoffID
	Number uint32
}

// About is what a journal says of itself; Body is the digest of its request.
type About struct {
	Run     handoff.HandoffID
	Body    handoff.Digest
	Model   string
	Kind    string // of the surface that asked: text, chat or response
	Created int64  // unix seconds
	Records int
}

// Record is one event as it was delivered.
type Record struct {
	Epoch      handoff.Epoch `json:"e,omitempty"`
	Position   uint32        `json:"p,omitempty"`
	Tokens     uint32        `json:"n,omitempty"`
	Text       string        `json:"t,omitempty"`
	Finish     string        `json:"f,omitempty"`
	Prompt     uint32        `json:"up,omitempty"` // usage, with Finish
	Completion uint32        `json:"uc,omitempty"`
	Direct     uint32        `json:"ud,omitempty"`
	Cached     uint32        `json:"uh,omitempty"`
	Recomputed uint32        `json:"ur,omitempty"`
	Code       string        `json:"c,omitempty"` // of a failure
	Detail     string        `json:"d,omitempty"`
	From       handoff.Epoch `json:"r,omitempty"` // a resume record: the epoch that broke
}

// Terminal says whether the record ends its stream.
func (r Record) Terminal() bool { return r.Finish != "" || r.Code != "" }

// Journal is safe for concurrent use. Every method may be repeated.
type Journal interface {
	// Open makes w the only writer and tells what is there. A run's first reader
	// begins the journal, which takes the place of an earlier run's: that run was
	// refused before its commit, or this one would not be. CodeStaleIncarnation
	// when a later reader writes; CodeGone when a later reader finds none.
	Open(ctx context.Context, n Name, w Writer, about About, ttl time.Duration) (records int, err error)

	// Append adds records from an index on; those that are there already are
	// left. CodeStaleIncarnation when another writes, CodeGone when records before
	// the index were lost, CodeTooLarge when it is full.
	Append(ctx context.Context, n Name, w Writer, index int, records []Record, ttl time.Duration) error

	// Read gives what is there from an index on, at most MaxBatch of it. CodeGone
	// when there is no journal.
	Read(ctx context.Context, n Name, index int) (About, []Record, error)
}

// Validate checks what names a journal and its writer.
func Validate(n Name, w Writer) error {
	if err := handoff.ValidateID("tenant", n.Tenant); err != nil {
		return err
	}
	if err := handoff.ValidateID("handoff", n.ID); err != nil {
		return err
	}
	if w.Number == 0 {
		return handoff.Errorf(handoff.CodeInvalid, "a journal's writer has no number")
	}
	return handoff.ValidateID("run", string(w.Run))
}

// All reads a journal whole.
func All(ctx context.Context, j Journal, n Name) (about About, out []Record, err error) {
	for {
		a, records, err := j.Read(ctx, n, len(out))
		if err != nil {
			return a, nil, err
		}
		if len(out) > 0 && a.Run != about.Run {
			return a, nil, handoff.Errorf(handoff.CodeUnavailable, "the journal of %s was begun anew meanwhile", n.ID)
		}
		about, out = a, append(out, records...)
		if len(records) == 0 || len(out) >= a.Records {
			return about, out, nil
		}
	}
}
