package redischeck

import (
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/goleak"

	"github.com/surehand/surehand/activities"
	"github.com/surehand/surehand/activities/claimcheck"
	"github.com/surehand/surehand/activities/claimcheck/claimchecktest"
	"github.com/surehand/surehand/contracts/handoff"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, addr string, keys ...[]byte) *Store {
	t.Helper()
	s, err := Open(Options{URL: "redis://" + addr, Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func key(t *testing.T) []byte {
	t.Helper()
	k, err := claimcheck.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestSuite(t *testing.T) {
	for name, keys := range map[string][][]byte{"sealed": {key(t)}, "in clear on this host": nil} {
		t.Run(name, func(t *testing.T) {
			claimchecktest.Run(t, func(t *testing.T) (claimcheck.Store, func(time.Duration)) {
				m := miniredis.RunT(t)
				return open(t, m.Addr(), keys...), m.FastForward
			})
		})
	}
}

const prompt = "a prompt that must not lie in clear"

func TestASealedBodyShowsNothingAndEndsByItself(t *testing.T) {
	m := miniredis.RunT(t)
	s := open(t, m.Addr(), key(t))
	if err := s.Put(t.Context(), claimchecktest.Input("t", "r"), activities.Body{Prompt: []byte(prompt)}); err != nil {
		t.Fatal(err)
	}
	keys := m.Keys()
	if len(keys) != 1 || m.TTL(keys[0]) != 17*time.Minute {
		t.Fatalf("kept %v for %v", keys, m.TTL(keys[0]))
	}
	kept, err := m.Get(keys[0])
	if err != nil || strings.Contains(kept, prompt) || strings.Contains(kept, "prompt") {
		t.Errorf("kept %q, %v", kept, err)
	}
}

func TestABodyOpensOnlyUnderItsOwnNameAndKeys(t *testing.T) {
	m := miniredis.RunT(t)
	old, fresh := key(t), key(t)
	s := open(t, m.Addr(), old)
	if err := s.Put(t.Context(), claimchecktest.Input("t", "r"), activities.Body{Prompt: []byte(prompt)}); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, m.Addr(), fresh, old).Body(t.Context(), "t", "r"); err != nil {
		t.Errorf("while the key is changed: %v", err)
	}
	if _, err := open(t, m.Addr(), fresh).Body(t.Context(), "t", "r"); handoff.CodeOf(err) != handoff.CodeGone {
		t.Errorf("under another key: %v", err)
	}
	kept, err := m.Get(name("t", "r"))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Set(name("u", "r"), kept); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Body(t.Context(), "u", "r"); handoff.CodeOf(err) != handoff.CodeGone {
		t.Errorf("moved to another tenant: %v", err)
	}
	if err := m.Set(name("t", "r"), kept[:len(kept)-1]+"x"); err != nil {
		t.Fatal(err)
	}
	_, err = s.Body(t.Context(), "t", "r")
	if handoff.CodeOf(err) != handoff.CodeGone || strings.Contains(err.Error(), prompt) {
		t.Errorf("changed at rest: %v", err)
	}
}

func TestAStoreElsewhereNeedsTLSAndAKey(t *testing.T) {
	for name, c := range map[string]struct {
		o    Options
		code handoff.Code
	}{
		"plaintext elsewhere":         {Options{URL: "redis://redis.example:6379", Keys: [][]byte{key(t)}}, handoff.CodeDenied},
		"no key elsewhere":            {Options{URL: "rediss://redis.example:6379"}, handoff.CodeDenied},
		"no key, plaintext permitted": {Options{URL: "redis://redis.example:6379", Plaintext: true}, handoff.CodeDenied},
		"short key":                   {Options{URL: "redis://127.0.0.1:1", Keys: [][]byte{{1, 2, 3}}}, handoff.CodeInvalid},
		"no url":                      {Options{URL: "://secret"}, handoff.CodeInvalid},
		"key and TLS elsewhere":       {Options{URL: "rediss://redis.example:6379", Keys: [][]byte{key(t)}}, handoff.CodeNone},
		"key and permitted plaintext": {Options{URL: "redis://redis.example:6379", Plaintext: true, Keys: [][]byte{key(t)}}, handoff.CodeNone},
		"on this host, in clear":      {Options{URL: "redis://localhost:1"}, handoff.CodeNone},
		"on this host, over a socket": {Options{URL: "unix:///tmp/redis.sock"}, handoff.CodeNone},
	} {
		s, err := Open(c.o)
		if handoff.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the refusal quotes the url: %v", name, err)
		}
		if s != nil {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestAStoreThatDoesNotAnswerIsUnknown(t *testing.T) {
	m := miniredis.RunT(t)
	s := open(t, m.Addr())
	m.SetError("LOADING")
	if err := s.Put(t.Context(), claimchecktest.Input("t", "r"), activities.Body{}); handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Errorf("put: %v", err)
	}
	if _, err := s.Body(t.Context(), "t", "r"); handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Errorf("body: %v", err)
	}
	if err := s.Drop(t.Context(), "t", "r"); handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Errorf("drop: %v", err)
	}
}
