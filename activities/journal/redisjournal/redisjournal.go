// Package redisjournal keeps journals in Redis: a stream of records a handoff,
// and a hash that names its run and its one writer. Both end by themselves.
package redisjournal

import (
	"context"
	_ "embed" // the scripts
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/surehand/surehand/activities/claimcheck"
	"github.com/surehand/surehand/activities/journal"
	"github.com/surehand/surehand/contracts/handoff"
)

// CallTimeout bounds one call. A client waits for it before it is shown a token.
const CallTimeout = time.Second

//go:embed lua/open.lua
var openText string

//go:embed lua/append.lua
var appendText string

var openScript, appendScript = redis.NewScript(openText), redis.NewScript(appendText)

// Journal is a journal.Journal in Redis. The client is the caller's to close and
// must not retry by itself; a nil sealer leaves records in clear, for a Redis on
// this host only, which the caller sees to.
type Journal struct {
	client redis.UniversalClient
	sealer *claimcheck.Sealer
}

var _ journal.Journal = (*Journal)(nil)

// New uses the caller's client.
func New(client redis.UniversalClient, sealer *claimcheck.Sealer) *Journal {
	return &Journal{client, sealer}
}

// keys share one hash tag, so that a Cluster keeps them in one slot.
func keys(n journal.Name) []string {
	tag := "surehand:{journal:" + n.Tenant + "/" + n.ID + "}:"
	return []string{tag + "about", tag + "records"}
}

// place is what a record's seal is bound to.
func place(n journal.Name, run handoff.HandoffID, index int) string {
	return fmt.Sprintf("surehand:journal:%s/%s/%s/%d", n.Tenant, n.ID, run, index)
}

// Open implements journal.Journal. Idempotent under (run, number).
func (j *Journal) Open(ctx context.Context, n journal.Name, w journal.Writer, a journal.About, ttl time.Duration) (int, error) {
	if err := journal.Validate(n, w); err != nil {
		return 0, err
	}
	return j.run(ctx, openScript, n, string(w.Run), w.Number, ttl.Milliseconds(), hex.EncodeToString(a.Body[:]), a.Model, a.Kind, a.Created)
}

// Append implements journal.Journal. Idempotent under the index.
func (j *Journal) Append(ctx context.Context, n journal.Name, w journal.Writer, index int, records []journal.Record, ttl time.Duration) error {
	if err := journal.Validate(n, w); err != nil {
		return err
	}
	if len(records) > journal.MaxBatch {
		return handoff.Errorf(handoff.CodeInvalid, "%d records at once, limit %d", len(records), journal.MaxBatch)
	}
	args := []any{string(w.Run), w.Number, index, ttl.Milliseconds(), journal.MaxRecords, journal.MaxBytes}
	for i, r := range records {
		raw, err := json.Marshal(r)
		if err != nil {
			return handoff.Errorf(handoff.CodeInternal, "a record cannot be written")
		}
		if j.sealer != nil {
			raw = j.sealer.Seal(place(n, w.Run, index+i), raw)
		}
		args = append(args, raw)
	}
	_, err := j.run(ctx, appendScript, n, args...)
	return err
}

func (j *Journal) run(ctx context.Context, s *redis.Script, n journal.Name, args ...any) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	got, err := s.Run(ctx, j.client, keys(n), args...).Slice()
	if err != nil || len(got) != 2 {
		return 0, unknown(err)
	}
	length, _ := got[1].(int64)
	switch got[0] {
	case "ok":
		return int(length), nil
	case "stale":
		return 0, handoff.Errorf(handoff.CodeStaleIncarnation, "another gateway reads %s now", n.ID)
	case "full":
		return 0, handoff.Errorf(handoff.CodeTooLarge, "the journal of %s is full: %d records or %d bytes", n.ID, journal.MaxRecords, journal.MaxBytes)
	}
	return 0, gone(n)
}

// Read implements journal.Journal.
func (j *Journal) Read(ctx context.Context, n journal.Name, index int) (a journal.About, out []journal.Record, err error) {
	if err := journal.Validate(n, journal.Writer{Run: "any", Number: 1}); err != nil {
		return a, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	k := keys(n)
	both := j.client.Pipeline()
	about := both.HGetAll(ctx, k[0])
	records := both.XRangeN(ctx, k[1], strconv.Itoa(index+1)+"-0", "+", journal.MaxBatch)
	if _, err := both.Exec(ctx); err != nil {
		return a, nil, unknown(err)
	}
	if a, err = fromHash(n, about.Val()); err != nil {
		return a, nil, err
	}
	for i, m := range records.Val() {
		if m.ID != strconv.Itoa(index+i+1)+"-0" {
			return a, nil, gone(n) // a gap
		}
		r, err := j.record(place(n, a.Run, index+i), m)
		if err != nil {
			return a, nil, err
		}
		out = append(out, r)
	}
	return a, out, nil
}

func (j *Journal) record(name string, m redis.XMessage) (r journal.Record, err error) {
	text, _ := m.Values["r"].(string)
	raw := []byte(text)
	if j.sealer != nil {
		if raw, err = j.sealer.Open(name, raw); err != nil {
			return r, err
		}
	}
	if json.Unmarshal(raw, &r) != nil {
		return r, handoff.Errorf(handoff.CodeGone, "a record of the journal is malformed")
	}
	return r, nil
}

func fromHash(n journal.Name, h map[string]string) (a journal.About, err error) {
	if h["run"] == "" {
		return a, gone(n)
	}
	body, err := hex.DecodeString(h["body"])
	if err != nil || len(body) != len(a.Body) {
		return a, gone(n)
	}
	a = journal.About{Run: handoff.HandoffID(h["run"]), Body: handoff.Digest(body), Model: h["model"], Kind: h["kind"]}
	a.Created, _ = strconv.ParseInt(h["created"], 10, 64)
	a.Records, _ = strconv.Atoi(h["len"])
	return a, nil
}

func gone(n journal.Name) error {
	return handoff.Errorf(handoff.CodeGone, "no journal of %s is held, or a part of it was lost", n.ID)
}

// unknown is a call whose result is not known (rule 23).
func unknown(err error) error {
	return handoff.Errorf(handoff.CodeUnavailable, "journal: %v", err)
}
