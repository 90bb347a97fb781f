package llamacpp

import (
	"fmt"
	"sync"
	"testing"

	"github.com/surehand/surehand/e2e/traffic"
)

func TestAHandoffGivesTheTokensOfTheLibraryAlone(t *testing.T) {
	c := client(t)
	for i, bytes := range []int{1, 40, 60, 300, 1500} { // 1500: more than the sliding window's first chunks
		for _, whole := range []bool{false, true} {
			a := ask(text(i, bytes), 24)
			a.Whole = whole
			got := c.Send(within(t, answerWithin), a)
			if err := right(t, a, got); err != nil {
				t.Errorf("%d bytes: %s", bytes, err)
			}
			t.Logf("%d tokens of prompt: first token after %s", got.Usage.Prompt, got.FirstToken)
		}
	}
	atRest(t)
}

func TestAChatIsMadeByTheModelsTemplate(t *testing.T) {
	a := ask("Hello.", 12)
	a.Chat = true
	got := client(t).Send(within(t, answerWithin), a)
	if err := got.Whole(); err != nil {
		t.Fatal(err)
	}
	want := alone.answer(t, "<start_of_turn>user\nHello.<end_of_turn>\n<start_of_turn>model\n", 12)
	if got.Text != want.text || got.Usage.Prompt != want.prompt {
		t.Errorf("%q of %d tokens, want %q of %d", got.Text, got.Usage.Prompt, want.text, want.prompt)
	}
	atRest(t)
}

// More at once than an engine has sequences: they wait or are refused, and each
// is answered with its own tokens.
func TestManyAtOnceKeepApart(t *testing.T) {
	const many = 64
	c := client(t)
	asks, got := make([]traffic.Ask, many), make([]traffic.Answer, many)
	var all sync.WaitGroup
	for i := range many {
		asks[i] = ask(text(i, 30+i%24*17), 12)
		asks[i].Prefill, asks[i].Decode = "", ""
		all.Go(func() { got[i], _ = c.Insist(within(t, answerWithin), asks[i], answerWithin, retryPause) })
	}
	all.Wait()
	for i := range many {
		if err := right(t, asks[i], got[i]); err != nil {
			t.Errorf("%d: %s", i, err)
		}
	}
	atRest(t)
}

func TestAPromptBeyondTheContextIsRefusedBeforeAnyPrefill(t *testing.T) {
	m := stage.Mark()
	for name, a := range map[string]traffic.Ask{"prompt": ask(text(0, 20000), 8), "answer": ask(text(0, 20), context1)} {
		got := client(t).Send(within(t, answerWithin), a)
		if got.Failure == nil || got.Status/100 != 4 {
			t.Errorf("%s: status %d, %v", name, got.Status, fmt.Sprint(got.Failure))
		}
	}
	if events := stage.Since(m); len(events) > 0 {
		t.Errorf("a daemon heard of it: %v", events)
	}
}
