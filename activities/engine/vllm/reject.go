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
	resp, err := s.send(ctx, SideD, http.MethodPost, r.Path, r.bare(refusedTokens, true, p, salt), header)
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

// FetchAndDrop has this decode server fetch what P pinned, draw one token and drop
// both, upon which its connector tells P. It is for a server that has not fetched
// from this P before: NIXL's handshake with it takes a while, and what a rejection
// says is told only with the engine's next step, which one that idles does not take.
// The salt keeps what it fetched from every other request. CodeInvalid: it refuses
// that as well.
func (s *Server) FetchAndDrop(ctx context.Context, r Request, p Prefilled, salt string, header http.Header) error {
	if p.Transfer == nil {
		return nil
	}
	resp, err := s.send(ctx, SideD, http.MethodPost, r.Path, r.bare(1, false, p, salt), header)
	if err == nil {
		_, err = whole(ctx, SideD, r.Path, resp)
	}
	var f *Failure
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f) && f.Status == http.StatusBadRequest:
		return handoff.Errorf(handoff.CodeInvalid, "D refuses to fetch")
	}
	return handoff.Errorf(handoff.CodeUnavailable, "D did not fetch for the release: %s", handoff.CodeOf(err))
}

// bare is the request with nothing of the client's but its prompt: whatever else it
// asked for could be refused before the connector hears of it.
func (r *Request) bare(tokens int, stream bool, p Prefilled, salt string) []byte {
	edits := append(r.limits(strconv.Itoa(tokens)), edit{"stream", strconv.FormatBool(stream)})
	body := r.Body.only("model", "prompt", "prompt_embeds", "messages")
	return body.with(append(edits, r.fetch(p, salt)...)...)
}
