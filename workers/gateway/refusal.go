package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/orchestrator"
	"github.com/surehand/surehand/workers/quota"
)

// statusClientLeft is what the access log and metrics say of a client that did
// not wait for its answer; nobody receives it.
const statusClientLeft = 499

// httpStatus is the one table from codes to statuses. A code that is missing
// here is a 500.
var httpStatus = map[handoff.Code]int{
	handoff.CodeInvalid:      http.StatusBadRequest,
	handoff.CodeTooLarge:     http.StatusRequestEntityTooLarge,
	handoff.CodeDenied:       http.StatusForbidden,
	handoff.CodeKeyReused:    http.StatusConflict,
	handoff.CodeAborted:      http.StatusConflict,
	handoff.CodeGone:         http.StatusGone,
	handoff.CodeCancelled:    statusClientLeft,
	handoff.CodeCapacity:     http.StatusTooManyRequests,
	handoff.CodeDeadline:     http.StatusGatewayTimeout,
	handoff.CodeProgress:     http.StatusGatewayTimeout,
	handoff.CodeEngine:       http.StatusBadGateway,
	handoff.CodeIntegrity:    http.StatusBadGateway,
	handoff.CodeStreamBroken: http.StatusBadGateway,

	handoff.CodeUnavailable:      http.StatusServiceUnavailable,
	handoff.CodeNotReady:         http.StatusServiceUnavailable,
	handoff.CodeStaleEpoch:       http.StatusServiceUnavailable,
	handoff.CodeStaleIncarnation: http.StatusServiceUnavailable,
	handoff.CodeStaleToken:       http.StatusServiceUnavailable,
	handoff.CodeConflict:         http.StatusServiceUnavailable,
	handoff.CodeClosed:           http.StatusServiceUnavailable,
	handoff.CodeMismatch:         http.StatusServiceUnavailable,
	handoff.CodeNotValidated:     http.StatusServiceUnavailable,
	handoff.CodeLease:            http.StatusServiceUnavailable,
	handoff.CodeReset:            http.StatusServiceUnavailable,

	// Not a 503: a client library would ask again by itself, and what became of
	// the first request is not known.
	handoff.CodeOutcomeUnknown: http.StatusInternalServerError,
	handoff.CodeInternal:       http.StatusInternalServerError,
}

// refusal is what a client is told.
type refusal struct {
	cause  *handoff.Error
	param  string        // the field it is about; empty: none
	name   string        // in place of the code's own name
	status int           // in place of the table's
	after  time.Duration // when to come again; zero: in a second
}

func (r *refusal) Error() string { return r.cause.Error() }
func (r *refusal) Unwrap() error { return r.cause }

// refuse names the field that is wrong.
func refuse(param, format string, args ...any) *refusal {
	return &refusal{cause: handoff.Errorf(handoff.CodeInvalid, format, args...), param: param}
}

// overQuota names the limit that a request would pass.
func overQuota(err error) error {
	var q *quota.Refused
	if !errors.As(err, &q) {
		return err
	}
	return &refusal{cause: q.Cause, name: "rate_limit_exceeded", param: q.Limit, after: q.After}
}

// asRefusal types any error. An untyped one is "unavailable": it tells nothing
// about what was done (rule 23).
func asRefusal(err error) *refusal {
	var r *refusal
	if errors.As(err, &r) {
		return r
	}
	var busy *orchestrator.Busy
	if errors.As(err, &busy) {
		return &refusal{cause: busy.Cause, after: busy.After}
	}
	var e *handoff.Error
	if errors.As(err, &e) {
		return &refusal{cause: e}
	}
	return &refusal{cause: handoff.Errorf(handoff.CodeOf(err), "%s", err.Error())}
}

// Status of the HTTP answer.
func (r *refusal) Status() int {
	if r.status != 0 {
		return r.status
	}
	if s, ok := httpStatus[r.cause.Code]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// Code as the client reads it.
func (r *refusal) Code() string {
	if r.name != "" {
		return r.name
	}
	return r.cause.Code.String()
}

func (r *refusal) kind() string {
	switch s := r.Status(); {
	case s == http.StatusUnauthorized:
		return "authentication_error"
	case s == http.StatusForbidden:
		return "permission_error"
	case s == http.StatusTooManyRequests:
		return "rate_limit_error"
	case s < http.StatusInternalServerError:
		return "invalid_request_error"
	}
	return "server_error"
}

// errorBody is OpenAI's shape. Handoff and Position are ours: which handoff to
// look at, and how many tokens of it the client has.
type errorBody struct {
	Error struct {
		Message  string  `json:"message"`
		Type     string  `json:"type"`
		Param    *string `json:"param"`
		Code     string  `json:"code"`
		Handoff  string  `json:"handoff,omitempty"`
		Position *uint32 `json:"position,omitempty"`
	} `json:"error"`
}

// body encodes the refusal; position is nil before the first token.
func (r *refusal) body(handoffID string, position *uint32) []byte {
	var b errorBody
	b.Error.Message = r.cause.Detail
	if b.Error.Message == "" {
		b.Error.Message = r.cause.Code.About()
	}
	b.Error.Type, b.Error.Code = r.kind(), r.Code()
	if r.param != "" {
		b.Error.Param = &r.param
	}
	b.Error.Handoff, b.Error.Position = handoffID, position
	text, err := json.Marshal(b)
	if err != nil { // strings and numbers always encode
		panic(fmt.Sprintf("encode an error body: %v", err))
	}
	return text
}

// write answers with the refusal; nothing may have been written before.
func (r *refusal) write(w http.ResponseWriter, handoffID string) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	status := r.Status()
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		h.Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(r.after.Seconds())))))
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(r.body(handoffID, nil), '\n')) // a client that left is told nothing
}
