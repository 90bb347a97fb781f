package gateway

import (
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/surehand/surehand/workers/access"
)

// Headers of ours. The first pin is the one that an endpoint picker sets.
const (
	headerKey      = "Idempotency-Key"
	headerRequest  = "X-Request-Id"
	headerHandoff  = "X-Surehand-Handoff"
	headerJoined   = "X-Surehand-Joined"
	headerTenant   = "X-Surehand-Tenant"
	headerDeadline = "X-Surehand-Deadline-Ms"
	headerPicked   = "X-Prefiller-Host-Port"
	headerPrefill  = "X-Surehand-Prefill"
	headerDecode   = "X-Surehand-Decode"
	headerJournal  = "X-Surehand-Journal" // on: keep the answer for a while, so that its client can come back
	headerResume   = "X-Surehand-Resume"  // replay: go on after D's death, with a resume record
	headerLast     = "Last-Event-ID"      // where a client that comes back stopped
)

// readHeaders adds what the headers say to the ask.
func (a *ask) readHeaders(h http.Header, by access.Caller) (err error) {
	if err = a.speakFor(by, h.Get(headerTenant)); err != nil {
		return err
	}
	a.key = h.Get(headerKey)
	if err := a.readComeback(h); err != nil {
		return err
	}
	a.decode = h.Get(headerDecode)
	if a.prefill, err = pinnedPrefill(h); err != nil {
		return err
	}
	if text := h.Get(headerDeadline); text != "" {
		ms, err := strconv.ParseInt(text, 10, 64)
		if err != nil || ms < 1 || ms > maxDeadline.Milliseconds() {
			return refuse(headerDeadline, "a deadline is 1 to %d milliseconds", maxDeadline.Milliseconds())
		}
		a.deadline = time.Duration(ms) * time.Millisecond
	}
	return nil
}

// speakFor makes the ask the caller's, for the tenant that it claims if it may.
func (a *ask) speakFor(by access.Caller, claimed string) (err error) {
	a.by = by
	a.tenant, err = by.For(claimed, DefaultTenant)
	return err
}

// pinnedPrefill takes an engine id, or the host:port that an endpoint picker
// chose; of several the first, as the picker's other readers do.
func pinnedPrefill(h http.Header) (string, error) {
	id, picked := h.Get(headerPrefill), h.Get(headerPicked)
	if picked == "" {
		return id, nil
	}
	if id != "" {
		return "", refuse(headerPrefill, "give %s or %s, not both", headerPrefill, headerPicked)
	}
	first, _, _ := strings.Cut(picked, ",")
	first = strings.TrimSpace(first)
	if host, port, err := net.SplitHostPort(first); err != nil || host == "" || port == "" {
		return "", refuse(headerPicked, "%s is not host:port", headerPicked)
	}
	return first, nil
}

// requestID is the client's own mark, or empty when it cannot be echoed safely.
func requestID(h http.Header) string {
	id := h.Get(headerRequest)
	if len(id) > MaxRequestIDBytes || !printable(id) {
		return ""
	}
	return id
}
