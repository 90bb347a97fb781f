package orchestrator

import (
	"context"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
)

func TestAStartWaitsForItsTurnOrIsRefusedTyped(t *testing.T) {
	s := newStarts(1)
	first, err := s.admit(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.admit(t.Context(), 2*time.Millisecond); handoff.CodeOf(err) != handoff.CodeCapacity {
		t.Errorf("a full house answers %v", err)
	}
	left, leave := context.WithCancel(t.Context())
	leave()
	if _, err := s.admit(left, time.Minute); handoff.CodeOf(err) != handoff.CodeCancelled {
		t.Errorf("a client that left is told %v", err)
	}
	first()
	second, err := s.admit(t.Context(), time.Minute)
	if err != nil {
		t.Fatalf("the turn was not given back: %v", err)
	}
	second()
}
