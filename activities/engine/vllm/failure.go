package vllm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"

	"github.com/surehand/surehand/contracts/handoff"
)

// Failure is a typed refusal of a server, with what only the client may see.
type Failure struct {
	Reason *handoff.Error
	Status int    // of HTTP; 0: there was no answer
	Body   []byte // the server's own words; may quote the prompt: never log it
	Down   bool   // the connection was refused or broke: nobody serves there now
}

func (f *Failure) Error() string { return f.Reason.Error() }
func (f *Failure) Unwrap() error { return f.Reason }

// Side is which half of a hand-off was asked.
type Side string

// Sides.
const (
	SideP Side = "P"
	SideD Side = "D"
)

// answered types a status that is no success.
func answered(side Side, status int, body []byte) *Failure {
	code, detail := handoff.CodeEngine, fmt.Sprintf("%s answered HTTP %d", side, status)
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		code = handoff.CodeDenied
	case status == http.StatusNotFound:
		code = handoff.CodeMismatch // of the model: the path is one that every server has
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || status == http.StatusRequestTimeout:
		code = handoff.CodeCapacity
	case status >= 400 && status < 500:
		code = handoff.CodeInvalid
	case status == http.StatusInternalServerError && side == SideD:
		// D says no more than this when its connector could not load (policy "fail").
		detail = "D answered HTTP 500 to a hand-off: the state did not load"
	}
	return &Failure{Reason: handoff.Errorf(code, "%s", detail), Status: status, Body: body}
}

// unanswered types a request that got no (whole) answer.
func unanswered(ctx context.Context, side Side, doing string, err error) *Failure {
	if ctx.Err() != nil {
		cause := context.Cause(ctx)
		var typed *handoff.Error
		if errors.As(cause, &typed) {
			return &Failure{Reason: typed}
		}
		return &Failure{Reason: handoff.Errorf(handoff.CodeUnavailable, "%s %s: %s", side, doing, cause)}
	}
	f := &Failure{Down: true}
	var op *net.OpError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		f.Reason = handoff.Errorf(handoff.CodeEngine, "%s %s: connection refused", side, doing)
	case errors.As(err, &op) && op.Timeout():
		f.Reason = handoff.Errorf(handoff.CodeEngine, "%s %s: no connection in time", side, doing)
	default:
		f.Reason = handoff.Errorf(handoff.CodeEngine, "%s %s: the connection broke", side, doing)
	}
	return f
}
