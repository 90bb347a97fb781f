package native

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"time"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/activities/engine/vllm"
	"github.com/surehand/surehand/contracts/handoff"
)

// attempt is what this process knows of one attempt while it is not over. Fields
// are guarded by Fleet.mu unless said otherwise; it ends exactly once, by over.
type attempt struct {
	plan   handoff.Plan
	p, d   *seat
	blocks uint32
	ctx    context.Context // of the prefill, and of everything before the dispatch
	stop   context.CancelCauseFunc

	made     time.Time
	reserved chan struct{} // closed once the target is open
	open     bool
	sent     chan struct{} // closed once decode is set
	ended    chan struct{} // closed by over
	cause    error         // why, set before

	prefill *prefill
	decode  *decode
	freeing *release // set once P is being told
}

// prefill is the one run at P.
type prefill struct {
	done    chan struct{} // the fields below are set before it closes
	sealed  engine.Sealed
	err     error
	request vllm.Request
	ref     string
	trace   string // traceparent of who asked first; empty: none
	header  http.Header
	asked   time.Time   // before P was asked: our lease counts from here
	before  vllm.Sample // of P, from before that
	got     vllm.Prefilled
}

// decode is the one dispatch to D.
type decode struct {
	ctx    context.Context
	stop   context.CancelCauseFunc
	sent   time.Time
	done   chan struct{} // closed once D answered; the fields below are set before
	answer *vllm.Answer
	err    error
	taken  bool // by its reader
	read   bool // its first part came: the fetch is over, and D has told P
	token  bool // the first part was given to the reader

	refused bool // D answered that it will not: it fetched nothing, and tells P nothing
}

// hold gives the attempt's record, making it when it is not known.
func (f *Fleet) hold(p handoff.Plan) (*attempt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a := f.attempts[p.Attempt]; a != nil {
		if a.plan != p {
			return nil, handoff.Errorf(handoff.CodeConflict, "this attempt has another plan") // rule 1
		}
		return a, nil
	}
	if err := f.refused(p); err != nil {
		return nil, err
	}
	a := &attempt{plan: p, p: f.named(p.P.Engine), d: f.named(p.D.Engine), made: time.Now(),
		reserved: make(chan struct{}), sent: make(chan struct{}), ended: make(chan struct{})}
	if a.p == nil || a.d == nil {
		return nil, handoff.Errorf(handoff.CodeInvalid, "the plan names an engine that is not of this fleet")
	}
	a.ctx, a.stop = context.WithCancelCause(f.life)
	f.attempts[p.Attempt] = a
	f.family(p.Attempt.Handoff).live++
	return a, nil
}

// refused says why no new record may be made: a tombstone, another life, no room.
func (f *Fleet) refused(p handoff.Plan) error {
	if p.P.Incarnation != f.incarnation || p.D.Incarnation != f.incarnation {
		return handoff.Errorf(handoff.CodeStaleIncarnation, "this is another life of the orchestrator that hands over natively")
	}
	if t := f.table.Get(p.Attempt); t != nil {
		if fam := f.families[p.Attempt.Handoff]; fam != nil && fam.ended[p.Attempt] != nil {
			return fam.ended[p.Attempt]
		}
		return closedAs(t)
	}
	if len(f.attempts) >= MaxAttempts {
		return handoff.Errorf(handoff.CodeCapacity, "%d attempts are under way, limit %d", len(f.attempts), MaxAttempts)
	}
	return nil
}

// closedAs is the refusal for a target that is over.
func closedAs(t *handoff.Target) error {
	if t.State == handoff.TargetAborted {
		return handoff.Errorf(handoff.CodeAborted, "the attempt was committed and is over")
	}
	return handoff.Errorf(handoff.CodeClosed, "the attempt is closed")
}

func (f *Fleet) named(id handoff.EngineID) *seat {
	for _, s := range f.seats {
		if s.id == id {
			return s
		}
	}
	return nil
}

func (f *Fleet) family(h handoff.HandoffID) *family {
	fam := f.families[h]
	if fam == nil {
		fam = &family{ended: map[handoff.Attempt]error{}}
		f.families[h] = fam
	}
	return fam
}

// over ends an attempt whose target is final: what runs for it stops, the record
// goes, P is told to free. The caller holds the lock. Idempotent.
func (f *Fleet) over(k handoff.Attempt, cause error) {
	a := f.attempts[k]
	f.buried(k)
	if a == nil {
		return
	}
	delete(f.attempts, k)
	fam := f.family(k.Handoff)
	fam.live--
	fam.ended[k] = cause
	fam.forget = time.Now().Add(keepRecord)
	a.cause = cause
	close(a.ended)
	a.stop(cause)
	if a.decode != nil {
		a.decode.stop(cause)
	}
	f.free(a)
}

// buried lets go of the target's room in the table; its tombstone stays a while.
func (f *Fleet) buried(k handoff.Attempt) {
	t := f.table.Get(k)
	if t == nil || t.Freed {
		return
	}
	if err := f.table.Free(k); err != nil {
		f.config.Log.Error("a closed target was not freed", "attempt", k.String(), "error", err.Error())
		return
	}
	f.records = append(f.records, record{k, time.Now()})
}

// requestID names the attempt at P and at D.
func (a *attempt) requestID() string {
	k := a.plan.Attempt
	return string(k.Handoff) + "-e" + strconv.Itoa(int(k.Epoch))
}

// salt keeps what D fetched for this attempt from every other one: two lives of
// this process may name attempts alike.
func (a *attempt) salt() string {
	sum := sha256.Sum256([]byte(a.requestID() + "\x00" + strconv.FormatUint(uint64(a.plan.P.Incarnation), 10)))
	return hex.EncodeToString(sum[:16])
}
