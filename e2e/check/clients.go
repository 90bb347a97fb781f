package check

import (
	"fmt"
	"maps"
	"slices"

	"github.com/surehand/surehand/contracts/handoff"
)

// oneRun: the client's tokens are those of one run, each once and in order.
func oneRun(f *Facts) (out []string) {
	for _, a := range f.Asked {
		for i, n := range a.Tokens {
			if n != i {
				out = append(out, fmt.Sprintf("%s gave token %d where %d was due", a.Handoff, n, i))
				break
			}
		}
		if a.Whole && len(a.Tokens) != a.Want {
			out = append(out, fmt.Sprintf("%s is whole with %d of %d tokens", a.Handoff, len(a.Tokens), a.Want))
		}
	}
	return out
}

// boundary: every prompt token's state came by exactly one way, and what was
// generated is what was told.
func boundary(f *Facts) (out []string) {
	for _, a := range f.Asked {
		if a.Whole && (a.Direct+a.Cached+a.Recomputed != a.Prompt || a.Completion != len(a.Tokens)) {
			out = append(out, fmt.Sprintf("%s: %d direct, %d cached and %d recomputed of %d prompt tokens; %d told, %d counted", a.Handoff, a.Direct, a.Cached, a.Recomputed, a.Prompt, len(a.Tokens), a.Completion))
		}
	}
	return out
}

func committed(f *Facts) map[handoff.HandoffID]bool {
	out := map[handoff.HandoffID]bool{}
	for _, e := range f.Events {
		if became(e, "target", "committed") {
			out[e.Attempt.Handoff] = true
		}
	}
	return out
}

// honest: direct is only said of what daemons moved.
func honest(f *Facts) (out []string) {
	moved := committed(f)
	for _, a := range f.Asked {
		if a.Direct > 0 && len(f.Events) > 0 && !moved[a.Handoff] {
			out = append(out, fmt.Sprintf("%s says %d direct and no daemon moved it", a.Handoff, a.Direct))
		}
	}
	return out
}

// idempotent: one key and one body are one handoff and one stream; another body
// under the key is refused.
func idempotent(f *Facts) (out []string) {
	type key struct{ tenant, key string }
	first := map[key]Asked{}
	for _, a := range f.Asked {
		k := key{a.Tenant, a.Key}
		if a.Key == "" || a.Refused != "" {
			continue
		}
		was, known := first[k]
		switch {
		case !known:
			first[k] = a
		case was.Body != a.Body:
			out = append(out, fmt.Sprintf("key %s was answered for two bodies", a.Key))
		case was.Handoff != a.Handoff && was.Whole:
			out = append(out, fmt.Sprintf("key %s was answered by %s and by %s", a.Key, was.Handoff, a.Handoff))
		case was.Whole && a.Whole && !slices.Equal(was.Tokens, a.Tokens):
			out = append(out, fmt.Sprintf("key %s gave two streams", a.Key))
		}
	}
	return out
}

// failClosed: no token without a commit, and none of a handoff that was refused
// before it.
func failClosed(f *Facts) (out []string) {
	moved := committed(f)
	for _, a := range f.Asked {
		switch {
		case len(a.Tokens) == 0:
		case a.Refused != "" && a.Before:
			out = append(out, fmt.Sprintf("%s was refused before its commit and gave %d tokens", a.Handoff, len(a.Tokens)))
		case len(f.Events) > 0 && !moved[a.Handoff]:
			out = append(out, fmt.Sprintf("%s gave %d tokens and was not committed", a.Handoff, len(a.Tokens)))
		}
	}
	return out
}

// granted: nothing is validated at a source that was not opened for this attempt.
func granted(f *Facts) (out []string) {
	opened := map[place]bool{}
	for _, e := range f.Events {
		if e.Machine != "source" {
			continue
		}
		opened[at(e)] = opened[at(e)] || became(e, "source", "opened")
		if e.Event == handoff.SourceQuestion.String() && accepted(e) && !opened[at(e)] {
			out = append(out, fmt.Sprintf("%s was validated at %s, which granted it nothing", e.Attempt, e.Node))
		}
	}
	return out
}

// walled: a prefix hit needs an earlier request of the same tenant.
func walled(f *Facts) (out []string) {
	seen := map[string]bool{}
	for _, a := range f.Asked {
		if a.Cached > 0 && !seen[a.Tenant] {
			out = append(out, fmt.Sprintf("%s had %d cached tokens, and nobody of tenant %q came before", a.Handoff, a.Cached, a.Tenant))
		}
		seen[a.Tenant] = true
	}
	return out
}

func bounded(f *Facts) (out []string) {
	for _, what := range slices.Sorted(maps.Keys(f.Limits)) {
		if n := f.Limits[what]; n[0] > n[1] {
			out = append(out, fmt.Sprintf("%d %s of %d", n[0], what, n[1]))
		}
	}
	return out
}

func replays(f *Facts) (out []string) {
	for _, h := range slices.Sorted(maps.Keys(f.Replays)) {
		if why := f.Replays[h]; why != "" {
			out = append(out, h+": "+why)
		}
	}
	return out
}
