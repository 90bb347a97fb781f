package traffic

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// event is the part of OpenAI's objects that is looked at, streamed or whole.
type event struct {
	Choices []struct {
		Text  string `json:"text"`
		Delta struct {
			Content string `json:"content"`
		} `json:"delta"`
		Message struct {
			Content string `json:"content"`
		} `json:"message"`
		Finish *string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
		Details    struct {
			Cached     int `json:"cached_tokens"`
			Direct     int `json:"direct_tokens"`
			Recomputed int `json:"recomputed_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	Resumed *Resumed `json:"surehand_resumed"`
	Error   *struct {
		Message  string  `json:"message"`
		Type     string  `json:"type"`
		Param    string  `json:"param"`
		Code     string  `json:"code"`
		Handoff  string  `json:"handoff"`
		Position *uint32 `json:"position"`
	} `json:"error"`
}

func (a *Answer) take(text []byte, began time.Time, last *time.Time) error {
	var e event
	if err := json.Unmarshal(text, &e); err != nil {
		return fmt.Errorf("an event is no JSON: %w", err)
	}
	if e.Error != nil {
		a.Failure = &Failure{Code: e.Error.Code, Type: e.Error.Type, Message: e.Error.Message, Param: e.Error.Param,
			Handoff: e.Error.Handoff, Position: e.Error.Position}
		return nil
	}
	if e.Resumed != nil {
		a.Resumed = append(a.Resumed, *e.Resumed)
	}
	for _, c := range e.Choices {
		piece := c.Text + c.Delta.Content + c.Message.Content
		if piece != "" {
			now := time.Now()
			if a.Pieces == 0 {
				a.FirstToken = now.Sub(began)
			} else {
				a.Gaps = append(a.Gaps, now.Sub(*last))
			}
			*last = now
			a.Text += piece
			a.Pieces++
		}
		if c.Finish != nil {
			a.Finish = *c.Finish
		}
	}
	if u := e.Usage; u != nil {
		a.Usage = Usage{u.Prompt, u.Completion, u.Details.Direct, u.Details.Cached, u.Details.Recomputed}
		if u.Total != u.Prompt+u.Completion {
			return fmt.Errorf("usage does not add up: %+v", *u)
		}
	}
	return nil
}

// stream reads server-sent events to the end of the connection. Anything after
// [DONE], or after an error event, is an error itself.
func (a *Answer) stream(r io.Reader, began time.Time, onPiece func(int)) {
	lines := bufio.NewReaderSize(r, 8<<10)
	var last time.Time
	for {
		line, err := lines.ReadBytes('\n')
		if id, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("id:")); ok {
			a.LastID = string(bytes.TrimSpace(id))
		}
		if data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data:")); ok {
			if a.Done || a.Failure != nil {
				a.Broken = errors.New("an event after the last one")
				return
			}
			data = bytes.TrimSpace(data)
			if string(data) == "[DONE]" {
				a.Done = true
				continue
			}
			pieces := a.Pieces
			if bad := a.take(data, began, &last); bad != nil {
				a.Broken = bad
				return
			}
			if onPiece != nil && a.Pieces > pieces {
				onPiece(a.Pieces)
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) || !a.Done && a.Failure == nil {
				a.Broken = err
			}
			return
		}
	}
}

func (a *Answer) whole(r io.Reader, began time.Time) {
	text, err := io.ReadAll(r)
	var last time.Time
	if err == nil {
		err = a.take(text, began, &last)
	}
	a.Broken, a.Done = err, err == nil
}

// refused reads the body of a status that is no success.
func (a *Answer) refused(r io.Reader) {
	text, err := io.ReadAll(r)
	var last time.Time
	if err == nil {
		err = a.take(text, time.Now(), &last)
	}
	if err == nil && a.Failure == nil {
		err = fmt.Errorf("status %d without a typed error: %s", a.Status, strings.TrimSpace(string(text)))
	}
	a.Broken = err
}
