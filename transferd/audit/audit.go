// Package audit writes a line for each grant, refusal, revocation, commit and tenant
// crossing of a daemon: who and when, never what. It follows the daemon's trace, so that it
// holds nothing back; what it could not follow it says. Whoever is refused before an
// attempt is named is told by Connections.
package audit

import (
	"context"
	"log/slog"
	"sync"

	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/fence"
	"github.com/surehand/surehand/transferd/trace"
)

// Start follows hub until it closes; it subscribes before it returns. The wait
// function returns once the last line is written.
func Start(hub *trace.Hub, log *slog.Logger) (wait func()) {
	events, leave := hub.Subscribe()
	var wg sync.WaitGroup
	wg.Go(func() {
		defer func() { leave() }()
		for {
			for e := range events {
				record(log, e)
			}
			if hub.IsClosed() {
				return
			}
			log.Error("audit", "act", "lost", "detail", "the audit fell behind and lines are missing")
			events, leave = hub.Subscribe()
		}
	})
	return wg.Wait
}

// Connections gives a function that writes the line of a connection, or of a first
// message, which was refused before it named an attempt: of which side, whose, and why.
func Connections(log *slog.Logger) func(side, peer string, why error) {
	if log == nil {
		return func(string, string, error) {}
	}
	return func(side, peer string, why error) {
		log.Warn("audit", "act", "refuse", "side", side, "event", "connect", "peer", peer, "code", handoff.CodeOf(why).String(), "detail", why.Error())
	}
}

// record writes the line of an event that matters to an auditor.
func record(log *slog.Logger, e *transferv1.TraceEvent) {
	act := act(e)
	if act == "" {
		return
	}
	a := e.GetAttempt()
	level := slog.LevelInfo
	if act == "refuse" || act == "crossing" || act == "stuck" {
		level = slog.LevelWarn
	}
	log.Log(context.Background(), level, "audit", "act", act, "side", e.GetMachine(), "event", e.GetEvent(), "handoff", a.GetHandoff(), "epoch", a.GetEpoch(),
		"nonce", handoff.Nonce(a.GetNonce()).String(), "from", e.GetFrom(), "to", e.GetTo(), "code", e.GetCode())
}

// act names what an event is to an auditor; empty for what is none of that.
func act(e *transferv1.TraceEvent) string {
	over := e.GetTo() == handoff.SourceClosed.String() || e.GetTo() == handoff.TargetClosed.String() || e.GetTo() == handoff.TargetAborted.String()
	switch {
	case e.GetEvent() == fence.EventCrossing:
		return "crossing"
	case e.GetEvent() == fence.EventStuck:
		return "stuck"
	case e.GetCode() != "" && e.GetFrom() == e.GetTo():
		return "refuse"
	case e.GetFrom() == e.GetTo():
		return "" // a repeat, or bytes
	case e.GetMachine() == "source" && e.GetTo() == handoff.SourceOpened.String():
		return "grant"
	case e.GetMachine() == "source" && over:
		return "revoke"
	case e.GetTo() == handoff.TargetCommitted.String():
		return "commit"
	case over:
		return "close"
	}
	return ""
}
