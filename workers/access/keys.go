package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/time/rate"
)

// How an issuer's keys are fetched.
const (
	keysTimeout     = 2 * time.Second
	keysFetchEvery  = time.Second // an unknown key has the set fetched again: no oftener than this
	keysFetchAtOnce = 3
	keysFor         = 5 * time.Minute  // a key that its issuer withdrew is believed no longer
	keysAgain       = 10 * time.Second // after old ones could not be fetched anew
	keysMost        = 24 * time.Hour   // without a fetch nobody is believed any more
)

// publicKeys reads a JWKS, and leaves out of it what is no public key.
func publicKeys(raw []byte) (out []jose.JSONWebKey, err error) {
	var set jose.JSONWebKeySet
	if len(raw) > maxKeySetBytes || json.Unmarshal(raw, &set) != nil {
		return nil, fmt.Errorf("no JWKS of at most %d bytes", maxKeySetBytes)
	}
	for _, k := range set.Keys {
		if p := k.Public(); p.Key != nil {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("it holds no public key")
	}
	return out, nil
}

// remoteKeys are those of a URL: fetched for a key that is not known, and when they
// are old, so that one that was withdrawn is forgotten though nobody shows another.
// While they cannot be fetched those that are known stay good, for a day: a provider
// that is away for longer may have withdrawn any of them.
type remoteKeys struct {
	url    string
	client *http.Client
	limit  *rate.Limiter
	now    func() time.Time

	fetching sync.Mutex // one caller fetches; who waited for it goes by what it brought
	mu       sync.Mutex // guards the rest
	keys     []jose.JSONWebKey
	fetched  uint64 // times
	last     time.Time
	until    time.Time
}

func newRemoteKeys(url string) *remoteKeys {
	return &remoteKeys{url: url, client: &http.Client{Timeout: keysTimeout}, limit: rate.NewLimiter(rate.Every(keysFetchEvery), keysFetchAtOnce), now: time.Now}
}

func (r *remoteKeys) known() (keys []jose.JSONWebKey, fetched uint64, old bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now().Sub(r.last) > keysMost {
		return nil, r.fetched, r.fetched > 0
	}
	return r.keys, r.fetched, r.fetched > 0 && r.now().After(r.until)
}

// VerifySignature implements oidc.KeySet.
func (r *remoteKeys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	parsed, err := jose.ParseSigned(token, signatures)
	if err != nil {
		return nil, err
	}
	keys, fetched, old := r.known()
	if old && r.fetching.TryLock() { // the others go by what is known meanwhile
		r.fetch(ctx)
		r.fetching.Unlock()
		keys, fetched, _ = r.known()
	}
	if payload, ok := verified(parsed, keys); ok {
		return payload, nil
	}
	if payload, ok := verified(parsed, r.newer(ctx, fetched)); ok {
		return payload, nil
	}
	return nil, errors.New("no key of the issuer signed this")
}

// newer are the keys of a fetch after the one that is told.
func (r *remoteKeys) newer(ctx context.Context, than uint64) []jose.JSONWebKey {
	r.fetching.Lock()
	defer r.fetching.Unlock()
	if _, fetched, _ := r.known(); fetched == than {
		r.fetch(ctx)
	}
	keys, _, _ := r.known()
	return keys
}

// fetch is paced, so that callers with made-up keys cannot have them fetched at will.
func (r *remoteKeys) fetch(ctx context.Context) {
	if !r.limit.Allow() {
		return
	}
	keys, err := r.get(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.until = r.now().Add(keysAgain)
		return
	}
	r.keys, r.last, r.until = keys, r.now(), r.now().Add(keysFor)
	r.fetched++
}

func (r *remoteKeys) get(ctx context.Context) ([]jose.JSONWebKey, error) {
	ask, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, r.url, nil) // a caller that leaves takes nobody's answer away
	if err != nil {
		return nil, err
	}
	resp, err := r.client.Do(ask)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxKeySetBytes+1))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", resp.StatusCode)
	}
	return publicKeys(raw)
}

// verified gives what one of the keys signed: the one of the token's key id, or
// where it names none, any.
func verified(token *jose.JSONWebSignature, keys []jose.JSONWebKey) ([]byte, bool) {
	if len(token.Signatures) != 1 {
		return nil, false
	}
	id := token.Signatures[0].Header.KeyID
	for _, k := range keys {
		if id != "" && k.KeyID != id {
			continue
		}
		if payload, err := token.Verify(k); err == nil {
			return payload, true
		}
	}
	return nil, false
}
