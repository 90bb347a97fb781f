//go:build e2e

package scenario

import (
	"strings"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/fleet/fleettest"
)

// D's blocks are four times P's: each pair serves short and long prompts, every
// prompt token comes by the handoff, and the synthetic D checks each byte.
func TestLayoutsOfUnlikeBlocksServeWholeStreams(t *testing.T) {
	o := chaos.Options()
	o.DecodeArgs = []string{"--synthetic-block-tokens", "64"}
	s := open(t, o)
	s.pairs(t, "blocks of 16 tokens to blocks of 64")
	for _, prompt := range []int{1, 15, 61, shortPrompt, longPrompt} {
		a := s.g1().Send(within(t, requestWithin), s.ask(prompt, 20))
		if err := a.Counted(20); err != nil {
			t.Errorf("%d tokens: %s", prompt, err)
		} else if a.Usage.Direct != prompt+2 || a.Usage.Cached+a.Usage.Recomputed != 0 {
			t.Errorf("%d tokens: usage is %+v, want all direct", prompt, a.Usage)
		}
	}
	s.atRest(t)
}

// D's vectors are wider than P's: no plan exists, and nobody computes for it.
func TestALayoutThatCannotBeIsRefusedByNameBeforeAnyPrefill(t *testing.T) {
	o := chaos.Options()
	o.DecodeArgs = []string{"--synthetic-token-bytes", "32"}
	s := unserved(t, o)
	ask := s.ask(shortPrompt, 5)
	for _, pinned := range []bool{true, false} {
		if !pinned {
			ask.Prefill, ask.Decode = "", ""
		}
		a := s.g1().Send(within(t, requestWithin), ask)
		if a.Failure == nil || a.Failure.Code != handoff.CodeUnavailable.String() || !strings.Contains(a.Failure.Message, "head dimension of cache 0") {
			t.Errorf("pinned %v: the answer is %s, want unavailable by the name of the property", pinned, chaos.Verdict(a))
		}
	}
	for _, e := range s.Since(0) {
		t.Errorf("a daemon holds or held something for it: %s", e)
	}
	s.atRest(t)
}

// unserved starts a fleet of one's own that is not expected to serve anybody.
func unserved(t *testing.T, o fleet.Options) *stage {
	t.Helper()
	p := fleettest.Programs(t, programs)
	st, err := chaos.Start(t.Context(), p, o)
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return &stage{st}
}
