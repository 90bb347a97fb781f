package gateway

import (
	"crypto/sha256"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
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
)

// Keys maps API keys to tenants. Without keys every caller is believed, which
// is for loopback only.
type Keys map[[sha256.Size]byte]string

// Add lets key speak for tenant. Only the key's digest is kept.
func (k Keys) Add(key, tenant string) error {
	if key == "" || !printable(key) {
		return handoff.Errorf(handoff.CodeInvalid, "an API key is printable ASCII, and not empty")
	}
	if err := handoff.ValidateID("tenant", tenant); err != nil {
		return err
	}
	k[sha256.Sum256([]byte(key))] = tenant
	return nil
}

// tenant says who calls. With keys it is whom the key belongs to; claimed is
// believed only without.
func (k Keys) tenant(authorization, claimed string) (string, error) {
	if len(k) == 0 {
		if claimed == "" {
			return DefaultTenant, nil
		}
		return claimed, nil
	}
	scheme, key, _ := strings.Cut(authorization, " ")
	tenant, known := k[sha256.Sum256([]byte(key))]
	if !strings.EqualFold(scheme, "bearer") || !known {
		return "", &refusal{cause: handoff.Errorf(handoff.CodeDenied, "the API key is missing or not known"), name: "invalid_api_key", status: http.StatusUnauthorized}
	}
	if claimed != "" && claimed != tenant {
		return "", handoff.Errorf(handoff.CodeDenied, "the API key does not speak for this tenant")
	}
	return tenant, nil
}

// readHeaders adds what the headers say to the ask.
func (a *ask) readHeaders(h http.Header, keys Keys) (err error) {
	if a.tenant, err = keys.tenant(h.Get("Authorization"), h.Get(headerTenant)); err != nil {
		return err
	}
	a.key = h.Get(headerKey)
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
