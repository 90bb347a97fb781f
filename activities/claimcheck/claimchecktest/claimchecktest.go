// Package claimchecktest is what every claim check must do.
package claimchecktest

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/surehand/surehand/activities"
	"github.com/surehand/surehand/activities/claimcheck"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// Input names a body of a tenant.
func Input(tenant, run string) steps.Input {
	return steps.Input{Tenant: tenant, Deadline: time.Minute, Decode: 15 * time.Minute,
		Plan: handoff.Plan{Attempt: handoff.Attempt{Handoff: handoff.HandoffID(run)}}}
}

// Run runs the suite over empty stores; pass lets a store's time go by.
func Run(t *testing.T, open func(t *testing.T) (s claimcheck.Store, pass func(time.Duration))) {
	body := activities.Body{Prompt: []byte("what the client wrote \x00\xff"), Stop: []string{"\n\n", "é"}}
	t.Run("a body comes back as it was", func(t *testing.T) {
		s, _ := open(t)
		for range 2 { // a repeat changes nothing
			if err := s.Put(t.Context(), Input("t", "r"), body); err != nil {
				t.Fatal(err)
			}
		}
		got, err := s.Body(t.Context(), "t", "r")
		if err != nil || !bytes.Equal(got.Prompt, body.Prompt) || !slices.Equal(got.Stop, body.Stop) {
			t.Errorf("got %q %q, %v", got.Prompt, got.Stop, err)
		}
	})
	t.Run("nobody reads another tenant's or handoff's", func(t *testing.T) {
		s, _ := open(t)
		if err := s.Put(t.Context(), Input("t", "r"), body); err != nil {
			t.Fatal(err)
		}
		for _, n := range [][2]string{{"u", "r"}, {"t", "q"}} {
			if _, err := s.Body(t.Context(), n[0], handoff.HandoffID(n[1])); handoff.CodeOf(err) != handoff.CodeGone {
				t.Errorf("%v: %v", n, err)
			}
		}
	})
	t.Run("a body ends with its handoff's budgets", func(t *testing.T) {
		s, pass := open(t)
		if err := s.Put(t.Context(), Input("t", "r"), body); err != nil {
			t.Fatal(err)
		}
		pass(16 * time.Minute)
		if _, err := s.Body(t.Context(), "t", "r"); err != nil {
			t.Errorf("within the budgets: %v", err)
		}
		pass(2 * claimcheck.Slack)
		if _, err := s.Body(t.Context(), "t", "r"); handoff.CodeOf(err) != handoff.CodeGone {
			t.Errorf("after them: %v", err)
		}
	})
	t.Run("a dropped body is gone", func(t *testing.T) {
		s, _ := open(t)
		if err := s.Put(t.Context(), Input("t", "r"), body); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := s.Drop(t.Context(), "t", "r"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Body(t.Context(), "t", "r"); handoff.CodeOf(err) != handoff.CodeGone {
			t.Errorf("%v", err)
		}
	})
	t.Run("names and sizes are bounded", func(t *testing.T) {
		s, _ := open(t)
		if err := s.Put(t.Context(), Input("T/x", "r"), body); handoff.CodeOf(err) != handoff.CodeInvalid {
			t.Errorf("a tenant with a slash: %v", err)
		}
		if _, err := s.Body(t.Context(), "t", ""); handoff.CodeOf(err) != handoff.CodeInvalid {
			t.Errorf("no handoff: %v", err)
		}
		big := activities.Body{Prompt: make([]byte, claimcheck.MaxBytes)}
		if err := s.Put(t.Context(), Input("t", "r"), big); handoff.CodeOf(err) != handoff.CodeTooLarge {
			t.Errorf("a large body: %v", err)
		}
		most := activities.Body{Prompt: []byte(strings.Repeat("x", handoff.MaxPromptTokens))}
		if err := s.Put(t.Context(), Input("t", "most"), most); err != nil {
			t.Errorf("the longest prompt: %v", err)
		}
	})
}
