package answer

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/contracts/handoff"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cut pushes text byte by byte, as a byte-level model does.
func cut(t *testing.T, text string, stops ...string) (pieces []Piece, stopped bool) {
	t.Helper()
	c := NewCutter(stops)
	for i := range len(text) {
		p, stop := c.Push([]byte{text[i]})
		if p.Tokens > 0 {
			pieces = append(pieces, p)
		}
		if stop {
			return pieces, true
		}
	}
	if p := c.Flush(); p.Tokens > 0 || len(p.Text) > 0 {
		pieces = append(pieces, p)
	}
	return pieces, false
}

func join(pieces []Piece) (text string, tokens uint32) {
	for _, p := range pieces {
		text += string(p.Text)
		tokens += p.Tokens
	}
	return text, tokens
}

func TestPiecesAreWholeCharacters(t *testing.T) {
	const text = "aé…𝄞z"
	pieces, _ := cut(t, text)
	for _, p := range pieces {
		if !utf8.Valid(p.Text) {
			t.Errorf("piece %q", p.Text)
		}
	}
	if got, n := join(pieces); got != text || n != uint32(len(text)) {
		t.Errorf("%q of %d tokens", got, n)
	}
}

func TestBytesThatAreNoTextAreReplaced(t *testing.T) {
	pieces, _ := cut(t, "a\xffb\xc3")
	if got, n := join(pieces); got != "a\uFFFDb\uFFFD" || n != 4 {
		t.Errorf("%q of %d tokens", got, n)
	}
}

func TestNoPartOfAStopStringIsShown(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"hello\n\nUser: x", "hello"},
		{"hello\n\nUse less", "hello\n\nUse less"},
		{"a\n\n\nUser:", "a\n"},
		{"\n\nUser:", ""},
	} {
		c2 := NewCutter([]string{"\n\nUser:", ""})
		shown := ""
		for i := range len(c.text) {
			p, stop := c2.Push([]byte{c.text[i]})
			shown += string(p.Text)
			if !strings.HasPrefix(c.want, shown) {
				t.Fatalf("%q: showed %q", c.text, shown)
			}
			if stop {
				break
			}
		}
		if shown += string(c2.Flush().Text); shown != c.want {
			t.Errorf("%q: showed %q, want %q", c.text, shown, c.want)
		}
	}
}

func TestTheEarliestOfTwoStopsCuts(t *testing.T) {
	c := NewCutter([]string{"cd", "b"})
	p, stopped := c.Push([]byte("abcd"))
	if string(p.Text) != "a" || !stopped {
		t.Errorf("%q %v", p.Text, stopped)
	}
}

// A cutter that holds back loses nothing: against a search of the whole text.
func TestCuttingEqualsASearchOfTheWhole(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		random := func(n int) string {
			b := make([]byte, n)
			for i := range b {
				b[i] = "ab"[r.IntN(2)]
			}
			return string(b)
		}
		text, stop := random(40), random(1+r.IntN(6))
		want, _, found := strings.Cut(text, stop)
		pieces, stopped := cut(t, text, stop)
		if got, _ := join(pieces); got != want || stopped != found {
			t.Fatalf("%q cut at %q: %q %v", text, stop, got, stopped)
		}
	}
}

func follow(t *testing.T, l *Log, from uint32) (text string, last Event, err error) {
	t.Helper()
	next := from
	err = l.Follow(t.Context(), from, func(e Event) error {
		if e.Position != next {
			t.Errorf("event at %d after %d", e.Position, next)
		}
		next += e.Tokens
		text += string(e.Text)
		last = e
		return nil
	})
	return text, last, err
}

func TestEveryReaderSeesTheSameWheneverItJoins(t *testing.T) {
	l := NewLog()
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			if text, last, err := follow(t, l, 0); text != "abcde" || last.Finish != FinishStop || err != nil {
				t.Errorf("%q %+v %v", text, last, err)
			}
		})
	}
	l.Append(Piece{[]byte("a"), 1})
	l.Append(Piece{[]byte("bcd"), 3})
	l.Finish(Piece{[]byte("e"), 1}, FinishStop, Counts{Direct: 9, Completion: 5})
	l.Append(Piece{[]byte("late"), 1})
	readers.Wait()
	for from, want := range map[uint32]string{0: "abcde", 1: "bcde", 4: "e", 5: ""} {
		text, last, err := follow(t, l, from)
		if text != want || last.Counts.Completion != 5 || err != nil {
			t.Errorf("from %d: %q %+v %v", from, text, last, err)
		}
	}
}

func TestAPositionThatNoEventNamedIsRefused(t *testing.T) {
	l := NewLog()
	l.Append(Piece{[]byte("abc"), 3})
	l.Finish(Piece{}, FinishLength, Counts{})
	for _, from := range []uint32{1, 2, 4} {
		if _, _, err := follow(t, l, from); handoff.CodeOf(err) != handoff.CodeInvalid {
			t.Errorf("from %d: %v", from, err)
		}
	}
}

func TestABrokenCompletionEndsWithItsErrorAfterItsText(t *testing.T) {
	l := NewLog()
	l.Append(Piece{[]byte("ab"), 2})
	broke := handoff.Errorf(handoff.CodeAborted, "released")
	if !l.Break(broke) || l.Break(errors.New("again")) {
		t.Error("only the first break counts")
	}
	l.Finish(Piece{}, FinishStop, Counts{})
	if text, last, err := follow(t, l, 0); text != "ab" || last.Finish != "" || !errors.Is(err, broke) {
		t.Errorf("%q %+v %v", text, last, err)
	}
	if _, _, err := follow(t, l, 7); !errors.Is(err, broke) {
		t.Error(err)
	}
}

func TestAReaderThatLeavesEndsItsOwnFollowingAlone(t *testing.T) {
	l := NewLog()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- l.Follow(ctx, 0, func(Event) error { return nil }) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if l.Over() {
		t.Error("the completion ended")
	}
}

func FuzzCutterShowsTextOnly(f *testing.F) {
	f.Add([]byte("aé\n\nUser:"), "\n\nUser:")
	f.Fuzz(func(t *testing.T, text []byte, stop string) {
		pieces, _ := cut(t, string(text), stop)
		shown, n := join(pieces)
		if !utf8.ValidString(shown) || n > uint32(len(text)) {
			t.Errorf("%q of %d tokens", shown, n)
		}
		if utf8.ValidString(stop) && stop != "" && strings.Contains(shown, stop) && !strings.Contains(stop, "\uFFFD") {
			t.Errorf("%q shows %q", shown, stop)
		}
	})
}
