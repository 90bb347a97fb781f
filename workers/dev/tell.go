package dev

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
)

// teller says what happens, one line at a time, to people or to a program.
type teller struct {
	json bool
	mu   sync.Mutex
	out  io.Writer
	up   bool
}

func newTeller(asJSON bool, out io.Writer) *teller { return &teller{json: asJSON, out: out} }

// change is told once everything is up: before, a start is the expected thing,
// and a failure is reported whole.
func (t *teller) change(c Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.up {
		return
	}
	if t.json {
		_ = t.line(c) // whoever reads is gone: then nobody is to be told
		return
	}
	text := c.Detail
	if c.PID != 0 {
		text = fmt.Sprintf("pid %d", c.PID)
	}
	fmt.Fprintf(t.out, "%s %s: %s\n", c.Name, c.Event, text)
}

func (t *teller) ready(r Ready) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.up = true
	if t.json {
		return t.line(r)
	}
	ui := r.UI
	if ui == "" {
		ui = "that of your Temporal"
	}
	var pids strings.Builder
	for _, c := range r.Children {
		fmt.Fprintf(&pids, " %s %d", c.Name, c.PID)
	}
	_, err := fmt.Fprintf(t.out, `
Surehand is ready (%.1f s, %d processes, data in %s)

  OpenAI API    %s
  gRPC          %s
  Live page     %s/ui/
  Temporal UI   %s
  Metrics       %s
  Process ids  %s

Try:

%s

Ctrl-C stops it, and keeps the histories.
`, r.Seconds, len(r.Children), r.Data, r.HTTP, r.GRPC, strings.TrimSuffix(r.HTTP, "/v1"), ui, r.Metrics, &pids, r.curl)
	return err
}

func (t *teller) line(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = t.out.Write(append(text, '\n'))
	return err
}
