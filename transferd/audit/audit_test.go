package audit

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/fence"
	"github.com/surehand/surehand/transferd/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEachGrantRefusalRevocationAndCommitIsALine(t *testing.T) {
	hub := trace.NewHub("tp", 3)
	var out bytes.Buffer
	wait := Start(hub, slog.New(slog.NewJSONHandler(&out, nil)))
	a := handoff.Attempt{Handoff: "h-1", Epoch: 2, Nonce: 7}
	for _, e := range []fence.Event{
		{Machine: "source", Attempt: a, Name: "open", From: "unknown", To: "opened"},
		{Machine: "source", Attempt: a, Name: "open", From: "opened", To: "opened"}, // a repeat
		{Machine: "source", Attempt: a, Name: "refuse-read", Code: handoff.CodeDenied},
		{Machine: "source", Attempt: a, Name: fence.EventCrossing, Code: handoff.CodeDenied},
		{Machine: "source", Attempt: a, Name: "seal", From: "opened", To: "sealed"},
		{Machine: "target", Attempt: a, Name: "commit", From: "validated", To: "committed"},
		{Machine: "source", Attempt: a, Name: "undo", From: "sealed", To: "closed", Code: handoff.CodeNone},
		{Machine: "source", Attempt: a, Name: fence.EventStuck, Code: handoff.CodeInternal},
	} {
		hub.Publish(e)
	}
	hub.Close()
	wait()
	var acts []string
	for _, line := range bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n")) {
		var l struct{ Act, Handoff string }
		if err := json.Unmarshal(line, &l); err != nil || l.Handoff != "h-1" {
			t.Fatal(err, string(line))
		}
		acts = append(acts, l.Act)
	}
	want := []string{"grant", "refuse", "crossing", "commit", "revoke", "stuck"}
	if len(acts) != len(want) {
		t.Fatal(acts)
	}
	for i := range want {
		if acts[i] != want[i] {
			t.Fatal(acts)
		}
	}
}
