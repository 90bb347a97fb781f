package model

import (
	"strings"
	"testing"
)

// answer completes a prompt until EOS or limit tokens.
func answer(t testing.TB, m *Model, prompt string, s *Sampler, limit int) (text string, ended bool) {
	t.Helper()
	tokens, err := Encode(prompt)
	if err != nil {
		t.Fatal(err)
	}
	r, state := m.NewRunner(), newState(len(tokens)+limit)
	var out strings.Builder
	logits := forward(t, r, state, tokens, 64)
	for range limit {
		token, err := s.Sample(logits)
		if err != nil {
			t.Fatal(err)
		}
		if token == EOS {
			return out.String(), true
		}
		out.Write(Text(token))
		logits = forward(t, r, state, []int{token}, 1)
	}
	return out.String(), false
}

func TestAnswersAreReadableAndEndByThemselves(t *testing.T) {
	const known = " the of and to a in was her she he it that not had be as for with but is his you him at have i "
	ended, words, common := 0, 0, 0
	prompts := []string{"What do you think of Mr. Knightley?", "Tell me about the weather.",
		"It is a truth universally acknowledged, that a single man must be in want of a wife."}
	for i, p := range prompts {
		text, eos := answer(t, load(t), p, newSampler(t, 0.7, 0.9, uint64(i)), 600)
		t.Logf("%s → %s", p, text)
		if eos {
			ended++
		}
		for _, w := range strings.Fields(strings.ToLower(text)) {
			words++
			if strings.Contains(known, " "+strings.Trim(w, `.,;:!?"'`)+" ") {
				common++
			}
		}
		for _, c := range text {
			if c < ' ' || c > '~' {
				t.Errorf("answer %d holds %q", i, c)
			}
		}
	}
	if ended < 2 || words < 20 || common*5 < words { // of English text a third are such words
		t.Errorf("%d of %d answers ended, %d of %d words are common ones", ended, len(prompts), common, words)
	}
}
