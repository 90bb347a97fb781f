package session

import (
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
)

func TestAnotherUserIsRefused(t *testing.T) {
	if err := sameUser(1000, 1000); err != nil {
		t.Fatal(err)
	}
	for _, peer := range []uint32{0, 1001, ^uint32(0)} {
		if err := sameUser(peer, 1000); handoff.CodeOf(err) != handoff.CodeDenied {
			t.Fatalf("user %d: %v", peer, err)
		}
	}
}
