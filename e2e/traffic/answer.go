package traffic

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Failure is a refusal in OpenAI's shape, as a status or as the last event.
type Failure struct {
	Code, Type, Message, Param, Handoff string
	Position                            *uint32
}

// Resumed is a resume record.
type Resumed struct {
	From     int `json:"from_epoch"`
	To       int `json:"to_epoch"`
	Position int `json:"position"`
}

// Usage tells how each prompt token's state came to D.
type Usage struct{ Prompt, Completion, Direct, Cached, Recomputed int }

// Answer is all that the client saw of one request.
type Answer struct {
	Status  int
	Handoff string
	Joined  bool
	Text    string
	Pieces  int
	Finish  string
	Usage   Usage
	Resumed []Resumed
	LastID  string   // of the last event that had one
	Done    bool     // [DONE] came, and nothing after it
	Failure *Failure // a typed refusal; nil: none
	Broken  error    // the connection ended without either

	RetryAfter time.Duration // as a refusal said; 0: it did not

	FirstToken, Total time.Duration // since the request was sent
	Gaps              []time.Duration
}

// Whole is nil when the stream has an end and everything before it.
func (a Answer) Whole() error {
	switch {
	case a.Broken != nil:
		return fmt.Errorf("the connection broke: %w", a.Broken)
	case a.Failure != nil:
		return fmt.Errorf("refused with %d %s: %s", a.Status, a.Failure.Code, a.Failure.Message)
	case a.Status != 200:
		return fmt.Errorf("status %d", a.Status)
	case !a.Done:
		return errors.New("no [DONE]")
	case a.Finish == "":
		return errors.New("no finish reason")
	case a.Pieces == 0:
		return errors.New("no text")
	}
	return nil
}

// Typed is nil when the request ended as it should: whole, or with a refusal
// that has a code and is the last thing that was said.
func (a Answer) Typed() error {
	if a.Failure == nil || a.Broken != nil {
		return a.Whole()
	}
	if a.Failure.Code == "" || a.Failure.Type == "" {
		return fmt.Errorf("a refusal without a code: %+v", *a.Failure)
	}
	if a.Done || a.Finish != "" {
		return fmt.Errorf("a refusal beside an end: %+v", *a.Failure)
	}
	if a.Status == 200 && a.Pieces > 0 && a.Failure.Position == nil {
		return fmt.Errorf("a refusal after the first token does not say after which: %+v", *a.Failure)
	}
	return nil
}

// Numbered counts the tokens of a synthetic engine, which are w0, w1, w2, …; a
// gap, a repeat or another's token is an error.
func (a Answer) Numbered() (tokens int, err error) {
	for _, word := range strings.Fields(a.Text) {
		if word != "w"+strconv.Itoa(tokens) {
			return tokens, fmt.Errorf("token %q where w%d was due", word, tokens)
		}
		tokens++
	}
	return tokens, nil
}

// Is is nil when a text is exactly the first so many tokens of a synthetic engine.
func (a Answer) Is(tokens int) error {
	got, err := a.Numbered()
	if err == nil && got != tokens {
		err = fmt.Errorf("%d tokens of %d", got, tokens)
	}
	return err
}

// Counted is nil when a stream of a synthetic engine is whole, in order and
// exactly so many tokens long, and its usage says so too.
func (a Answer) Counted(tokens int) error {
	if err := a.Whole(); err != nil {
		return err
	}
	got, err := a.Numbered()
	if err != nil {
		return err
	}
	if got != tokens || a.Usage.Completion != tokens {
		return fmt.Errorf("%d tokens came and usage says %d, of %d", got, a.Usage.Completion, tokens)
	}
	return nil
}
