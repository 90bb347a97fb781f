package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

const (
	requestWithin = 45 * time.Second
	restWithin    = 45 * time.Second
)

// recorder drives one fleet through outcomes.
type recorder struct {
	f      *fleet.Fleet
	client *traffic.Client
}

func newRecorder(f *fleet.Fleet) *recorder {
	return &recorder{f: f, client: traffic.NewClient(f.HTTP["g1"])}
}

func (r *recorder) close() { r.client.Close() }

// run brings an outcome about and writes its history. It says how it ended.
func (r *recorder) run(ctx context.Context, o outcome, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestWithin+restWithin)
	defer cancel()
	ask := traffic.Ask{Model: fleet.SyntheticModel, Prompt: traffic.Words(o.prompt), MaxTokens: tokens, Prefill: "p1", Decode: "d1",
		Deadline: 20 * time.Second}
	if o.change != nil {
		o.change(&ask)
	}
	if err := errors.Join(fault.Serves(ctx, r.f, r.client), r.f.AtRest(ctx, restWithin)); err != nil {
		return "", err
	}
	m := r.f.Mark()
	answer, err := r.answer(ctx, o, ask)
	if err != nil {
		return "", err
	}
	if err := errors.Join(r.f.Heal(ctx), r.f.AtRest(ctx, restWithin)); err != nil {
		return "", err
	}
	id := r.named(answer, m)
	if id == "" {
		return "", errors.New("no handoff was begun")
	}
	h, err := r.f.History(ctx, fleet.DefaultTenant, id)
	if err != nil {
		return "", err
	}
	out, err := r.f.Outcome(ctx, fleet.DefaultTenant, id)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("epoch %d, committed %t, code %q, finish %q", out.Attempt.Epoch, out.Committed, out.Code, out.Finish), write(path, h)
}

func (r *recorder) answer(ctx context.Context, o outcome, ask traffic.Ask) (traffic.Answer, error) {
	asking, leave := context.WithTimeout(ctx, requestWithin)
	defer leave()
	if o.phase == nil {
		return r.client.Send(asking, ask), nil
	}
	hit, err := fault.Strike(asking, r.f, r.client, ask, *o.phase, func(e fleet.Event) error {
		return o.strike(ctx, struck{r.f, fault.PublicID(e.Attempt), leave})
	})
	if err != nil {
		return hit.Answer, fmt.Errorf("%w; the answer: %v", err, hit.Whole())
	}
	return hit.Answer, nil
}

// named finds the handoff's public id: the client was told, or the daemons were.
func (r *recorder) named(a traffic.Answer, m fleet.Mark) string {
	if a.Handoff != "" {
		return a.Handoff
	}
	if a.Failure != nil && a.Failure.Handoff != "" {
		return a.Failure.Handoff
	}
	for _, e := range r.f.Since(m) {
		return fault.PublicID(e.Attempt)
	}
	return ""
}

// write keeps a history as Temporal's own JSON, without who and where it ran,
// and makes sure that it reads back.
func write(path string, h *historypb.History) error {
	text, err := protojson.Marshal(h)
	if err != nil {
		return err
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		return err
	}
	anonymous(tree)
	if text, err = json.MarshalIndent(tree, "", " "); err != nil {
		return err
	}
	if _, err := client.HistoryFromJSON(bytes.NewReader(text), client.HistoryJSONOptions{}); err != nil {
		return fmt.Errorf("a history does not read back: %w", err)
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// anonymous takes the names of processes and machines out.
func anonymous(tree any) {
	switch node := tree.(type) {
	case map[string]any:
		for name, value := range node {
			if _, ok := value.(string); ok && name == "identity" {
				node[name] = "worker"
				continue
			}
			anonymous(value)
		}
	case []any:
		for _, value := range node {
			anonymous(value)
		}
	}
}
