package claimcheck

import (
	"bytes"
	"encoding/hex"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestABodyIsKeptNoLongerThanADay(t *testing.T) {
	if d := TTL(steps.Input{Deadline: time.Minute, Decode: 100 * time.Hour}); d != TTLMax {
		t.Errorf("kept for %s", d)
	}
}

func TestTwoSealsOfOneBodyDiffer(t *testing.T) {
	k, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSealer(k)
	if err != nil {
		t.Fatal(err)
	}
	a, b := s.Seal("n", []byte("x")), s.Seal("n", []byte("x"))
	if bytes.Equal(a, b) {
		t.Error("a repeated body shows")
	}
	if _, err := NewSealer(); handoff.CodeOf(err) != handoff.CodeInvalid {
		t.Errorf("no key: %v", err)
	}
}

// FuzzOpen feeds a store's bytes to whoever takes over: nothing but what was
// sealed may open, and nothing may panic.
func FuzzOpen(f *testing.F) {
	s, err := NewSealer(bytes.Repeat([]byte{7}, KeyBytes))
	if err != nil {
		f.Fatal(err)
	}
	// Sealed once for all: each worker of the fuzzer would seal it another way.
	good, err := hex.DecodeString("92e496ac3349796a6f4050263aec5710e87419740ee43a2753f0399bf08eaa173d50921a3e243a28e3bc9aaf62")
	if err != nil {
		f.Fatal(err)
	}
	if raw, err := s.Open("t/r", good); err != nil || string(raw) != `{"prompt":"eA=="}` {
		f.Fatal(string(raw), err)
	}
	f.Add(good)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, sealed []byte) {
		if _, err := s.Open("t/r", sealed); err == nil && !bytes.Equal(sealed, good) {
			t.Error("a forged body opened")
		}
		if _, err := Unmarshal(sealed); err != nil && handoff.CodeOf(err) != handoff.CodeGone {
			t.Errorf("refused as %v", err)
		}
	})
}
