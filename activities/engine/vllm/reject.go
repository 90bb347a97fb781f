package vllm

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/surehand/surehand/contracts/handoff"
)

// refusedTokens is more than any context has room for.
const refusedTokens = 1 << 30

// Reject makes this decode server tell P to free the blocks of a transfer that
// nobody will fetch: it is asked for more tokens than its context holds, refuses
// with 400, and its connector, which is told of the refused request, releases P.
// This is the one documented way, and it is safe to repeat.
//
// A server that does not refuse is left at once, which it treats as an abort of
// a request that holds the transfer: it then releases P as well.
func (s *Server) Reject(ctx context.Context, r Request, p Prefilled, salt string, header http.Header) error {
	if p.Transfer == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	edits := append(r.limits(strconv.Itoa(refusedTokens)), edit{"stream", "true"})
	// Whatever else the client asked for could be refused before the connector hears of it.
	body := r.Body.only("model", "prompt", "prompt_embeds", "messages")
	resp, err := s.send(ctx, SideD, http.MethodPost, r.Path, body.with(append(edits, r.fetch(p, salt)...)...), header)
	var f *Failure
	switch {
	case err == nil:
		cancel()
		_ = resp.Body.Close() // dropped on purpose
		return nil
	case errors.As(err, &f) && f.Status == http.StatusBadRequest:
		return nil
	}
	return handoff.Errorf(handoff.CodeUnavailable, "D did not take the release: %s", handoff.CodeOf(err))
}
