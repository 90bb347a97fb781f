// Package operations keeps what operators said: which engines are cordoned, and
// an audit of every act, in Redis, for the whole fleet. An act whose entry cannot
// be written is not done. The audit is bounded: the oldest entries go first.
package operations

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/surehand/surehand/contracts/handoff"
)

const (
	cordonsKey = "surehand:operate:cordons"
	auditKey   = "surehand:operate:audit"
	// CallTimeout bounds one call.
	CallTimeout = 500 * time.Millisecond
	// MaxEntries bounds the audit, about.
	MaxEntries = 10000
	// MaxCordons bounds the engines that are cordoned at once.
	MaxCordons = 1024
	// MaxReasonBytes bounds what an operator says about an act.
	MaxReasonBytes = 256
)

// Entry is one act.
type Entry struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Action string    `json:"action"`
	On     string    `json:"on"`
	Reason string    `json:"reason"`
}

// Validate refuses an act without a name or a reason.
func (e Entry) Validate() error {
	switch {
	case e.By == "" || e.Action == "" || e.On == "":
		return handoff.Errorf(handoff.CodeInvalid, "an act names who, what and on what")
	case strings.TrimSpace(e.Reason) == "" || len(e.Reason) > MaxReasonBytes:
		return handoff.Errorf(handoff.CodeInvalid, "reason: give one, of at most %d bytes", MaxReasonBytes)
	}
	return nil
}

// Store is in Redis; the client is the caller's to close and must not retry.
type Store struct{ client redis.UniversalClient }

// New uses the caller's client.
func New(client redis.UniversalClient) *Store { return &Store{client} }

// Record writes an entry. Not idempotent on purpose: an act that was asked for
// twice stands there twice.
func (s *Store) Record(ctx context.Context, e Entry) error {
	if err := e.Validate(); err != nil {
		return err
	}
	e.At = time.Now()
	raw, err := json.Marshal(e)
	if err != nil {
		return handoff.Errorf(handoff.CodeInternal, "an audit entry cannot be written")
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	return unknown(s.client.XAdd(ctx, &redis.XAddArgs{Stream: auditKey, MaxLen: MaxEntries, Approx: true, Values: []any{"e", raw}}).Err())
}

// Entries lists the newest first.
func (s *Store) Entries(ctx context.Context, most int) (out []Entry, err error) {
	if most < 1 || most > MaxEntries {
		return nil, handoff.Errorf(handoff.CodeInvalid, "limit is %d, want 1..%d", most, MaxEntries)
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	got, err := s.client.XRevRangeN(ctx, auditKey, "+", "-", int64(most)).Result()
	if err != nil {
		return nil, unknown(err)
	}
	for _, m := range got {
		var e Entry
		if text, ok := m.Values["e"].(string); ok && json.Unmarshal([]byte(text), &e) == nil {
			out = append(out, e)
		}
	}
	return out, nil
}

// Cordon has an engine take nothing new, or with off take work again. Idempotent.
func (s *Store) Cordon(ctx context.Context, engine handoff.EngineID, why string, off bool) error {
	if err := handoff.ValidateID("engine", string(engine)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	if off {
		return unknown(s.client.HDel(ctx, cordonsKey, string(engine)).Err())
	}
	n, err := s.client.HLen(ctx, cordonsKey).Result()
	if err == nil && n >= MaxCordons {
		return handoff.Errorf(handoff.CodeTooLarge, "%s engines are cordoned, the limit", strconv.Itoa(MaxCordons))
	}
	if err == nil {
		err = s.client.HSet(ctx, cordonsKey, string(engine), why).Err()
	}
	return unknown(err)
}

// Cordons are the engines that take nothing new, and why.
func (s *Store) Cordons(ctx context.Context) (map[handoff.EngineID]string, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	got, err := s.client.HGetAll(ctx, cordonsKey).Result()
	if err != nil {
		return nil, unknown(err)
	}
	out := make(map[handoff.EngineID]string, len(got))
	for e, why := range got {
		out[handoff.EngineID(e)] = why
	}
	return out, nil
}

// unknown is a call whose result is not known (rule 23).
func unknown(err error) error {
	if err == nil {
		return nil
	}
	return handoff.Errorf(handoff.CodeUnavailable, "operations: %v", err)
}
