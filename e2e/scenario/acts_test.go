//go:build e2e

package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	operatev1 "github.com/surehand/surehand/contracts/gen/surehand/operate/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

// insist repeats an act while it is refused so: a head start is ahead of the
// handoff's history, and its end a moment behind its client's.
func (c console) insist(t *testing.T, ctx context.Context, while string, args ...string) string {
	t.Helper()
	for {
		out, err := c.try(ctx, args...)
		if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), while) {
			if err != nil {
				t.Errorf("surehand %v: %s", args, err)
			}
			return out
		}
	}
}

// opened waits for an epoch of a handoff to be computed somewhere.
func (s *stage) opened(t *testing.T, ctx context.Context, m fleet.Mark, id string, e handoff.Epoch) fleet.Event {
	t.Helper()
	got, err := s.Await(ctx, m, func(v fleet.Event) bool {
		return v.Became("source", handoff.SourceOpened.String()) && (id == "" || fault.PublicID(v.Attempt) == id) && v.Attempt.Epoch == e
	})
	if err != nil {
		t.Fatalf("epoch %d: %s", e, err)
	}
	return got
}

// One live handoff, everything that an operator may do to it, and who dies in
// between: pinned before its P is killed, its second epoch is made where the pin
// said; re-placed, its third where the operator said; its gateway is killed, and
// its client goes on at the other one; its D is cordoned, drained and tells what
// it owes; it is cancelled; what it held is released. Commands and gRPC do the
// same, and each act stands in the audit.
func TestOperatorsActOnOneLiveHandoffWhoeverDies(t *testing.T) {
	s := shared(t)
	ctx := within(t, 3*requestWithin)
	cli, op := console{s, "g2"}, operator(t, s.GRPC["g2"])
	before, err := op.Audit(ctx, &operatev1.AuditRequest{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	ask := s.ask(8000, 2000) // each prefill takes four seconds, the answer twenty
	ask.Journal = true
	ask.OnPiece = func(n int) {
		if n == 3 {
			if err := s.Process("g1").Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	m := s.Mark()
	first := make(chan traffic.Answer, 1)
	go func() { first <- s.g1().Send(ctx, ask) }()

	one := s.opened(t, ctx, m, "", 1)
	id := fault.PublicID(one.Attempt)
	owner := fleet.DefaultTenant + "/" + id
	if one.Node != "tp1" {
		t.Fatalf("epoch 1 is computed at %s", one.Node)
	}
	cli.insist(t, ctx, "does not run", "operate", "pin", id, "--prefill", "p2", "--decode", "d2", "--reason", "p1 looks ill")
	if owes := cli.run(t, ctx, "operate", "owes", "p1"); !strings.Contains(owes, "source") || !strings.Contains(owes, owner) {
		t.Errorf("p1 owes %s", owes)
	}
	if _, err := op.Release(ctx, &operatev1.ActRequest{Handoff: id, Reason: "too early"}); handoff.CodeOf(rpc.FromStatus(err)) != handoff.CodeConflict {
		t.Errorf("a handoff that runs is released: %v", err)
	}
	if err := s.Process("p1").Kill(); err != nil {
		t.Fatal(err)
	}

	if two := s.opened(t, ctx, m, id, 2); two.Node != "tp2" {
		t.Errorf("epoch 2 is computed at %s", two.Node)
	}
	a, err := op.Replace(ctx, &operatev1.SteerRequest{Handoff: id, Reason: "d2 is needed", Prefill: "p2", Decode: "d1"})
	if err != nil || a.GetEpoch() != 2 {
		t.Fatalf("re-placed: %v %v", a, err)
	}
	if three := s.opened(t, ctx, m, id, 3); three.Node != "tp2" {
		t.Errorf("epoch 3 is computed at %s", three.Node)
	}
	cut := <-first // its gateway dies at its third piece
	if cut.Broken == nil || cut.Pieces < 3 || cut.LastID == "" {
		t.Fatalf("the first stream is %s", chaos.Verdict(cut))
	}
	begun, second := make(chan struct{}), make(chan traffic.Answer, 1)
	go func() {
		second <- s.g2().AttachWhile(ctx, id, cut.LastID, func(n int) {
			if n == 3 {
				close(begun)
			}
		})
	}()
	select {
	case <-begun:
	case a := <-second:
		t.Fatalf("at the other gateway: %s", chaos.Verdict(a))
	}
	cli.run(t, ctx, "operate", "cordon", "d1", "--reason", "disk replaced")
	draining, err := op.Drain(ctx, &operatev1.CordonRequest{Engine: "d1", Reason: "disk replaced"})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := draining.Recv(); err != nil || len(first.GetHeld()) != 1 || first.GetHeld()[0].GetHandoff() != id {
		t.Errorf("a drain of d1 tells %v %v", first, err)
	}
	if owes, err := op.Owes(ctx, &operatev1.OwesRequest{Engine: "d1"}); err != nil || len(owes.GetHeld()) != 1 || owes.GetHeld()[0].GetOwner() != owner ||
		owes.GetHeld()[0].GetKind() != "target" || owes.GetHeld()[0].GetBlocks() == 0 || owes.GetHeld()[0].GetEpoch() != 3 {
		t.Errorf("d1 owes %v %v", owes, err)
	}
	cli.run(t, ctx, "operate", "cancel", id, "--reason", "nobody needs it") // its history hears a moment later
	if a := <-second; a.Failure == nil || a.Failure.Code != handoff.CodeCancelled.String() {
		t.Errorf("the client of a handoff that an operator cancelled saw %s", chaos.Verdict(a))
	}
	for err == nil {
		_, err = draining.Recv()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("the drain ended with %v", err)
	}
	if out := cli.run(t, ctx, "operate", "drain", "d1", "--reason", "disk replaced"); !strings.Contains(out, "d1 owes nothing") {
		t.Errorf("the drain said %s", out)
	}
	cli.run(t, ctx, "operate", "uncordon", "d1", "--reason", "disk is there")
	if out := cli.insist(t, ctx, "runs: cancel it", "operate", "release", id, "--reason", "to be sure"); !strings.Contains(out, "released") {
		t.Errorf("released, it said %q", out)
	}
	oneOwner(t, s.Since(m))
	s.audited(t, ctx, before.GetEntries(), []string{"pin " + owner + ": p1 looks ill", "replace " + owner + ": d2 is needed", "cordon d1: disk replaced",
		"cordon d1: disk replaced", "cancel " + owner + ": nobody needs it", "cordon d1: disk replaced", "uncordon d1: disk is there", "release " + owner + ": to be sure"})
}

// audited fails the test unless just those acts, each once an attempt, stand
// behind what stood there before.
func (s *stage) audited(t *testing.T, ctx context.Context, before []*operatev1.AuditEntry, want []string) {
	t.Helper()
	var since int64
	if len(before) > 0 {
		since = before[0].GetAtUnixMs()
	}
	a, err := operator(t, s.GRPC["g2"]).Audit(ctx, &operatev1.AuditRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range slices.Backward(a.GetEntries()) {
		line := e.GetAction() + " " + e.GetOn() + ": " + e.GetReason()
		if e.GetAtUnixMs() <= since || len(got) > 0 && got[len(got)-1] == line && e.GetAction() == "pin" { // asked until its history knew of it
			continue
		}
		if e.GetBy() == "" {
			t.Errorf("nobody did %s", line)
		}
		got = append(got, line)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the audit says\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	text := console{s, "g2"}.run(t, ctx, "operate", "audit")
	for _, line := range want {
		if !strings.Contains(text, line) {
			t.Errorf("surehand operate audit does not tell %q", line)
		}
	}
}

// The ledger of leaks tells what is held and for whom while it is, by command and
// by metric: nothing for a handoff that runs, though its gateway is killed; what a
// stopped engine keeps of a handoff that is over; a promise that nobody made a
// target of; and nothing, once they are let go.
func TestTheLeakLedgerTellsWhatIsHeldForNobody(t *testing.T) {
	s := shared(t)
	ctx := within(t, 4*requestWithin)
	cli, op := console{s, "g2"}, operator(t, s.GRPC["g2"])
	ask := s.ask(longPrompt, 2000)
	ask.Key, ask.Journal = fmt.Sprintf("leaks-%d", time.Now().UnixNano()), true
	ask.OnPiece = func(n int) {
		if n == 3 {
			if err := s.Process("g1").Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	cut := s.g1().Send(ctx, ask)
	owner := fleet.DefaultTenant + "/" + cut.Handoff
	rest := make(chan traffic.Answer, 1)
	reading := make(chan struct{})
	go func() {
		rest <- s.g2().AttachWhile(ctx, cut.Handoff, cut.LastID, func(n int) {
			if n == 3 {
				close(reading)
			}
		})
	}()
	select {
	case <-reading:
	case a := <-rest:
		t.Fatalf("at the other gateway: %s", chaos.Verdict(a))
	}
	if all := cli.run(t, ctx, "leaks", "--all"); !strings.Contains(all, "target") || !strings.Contains(all, owner) {
		t.Errorf("held is\n%s", all)
	}
	if out := cli.run(t, ctx, "leaks"); !strings.Contains(out, "nothing is held for nobody") {
		t.Errorf("a handoff whose gateway was killed counts as a leak:\n%s", out)
	}
	if err := s.Process("g1").Start(ctx); err != nil {
		t.Fatal(err)
	}

	// D stops in its middle, and its operator ends the handoff: the memory is D's.
	if err := s.Process("d1").Pause(); err != nil {
		t.Fatal(err)
	}
	if _, err := op.Cancel(ctx, &operatev1.ActRequest{Handoff: cut.Handoff, Reason: "its engine hangs"}); err != nil {
		t.Error(err)
	}
	<-rest
	leaked := s.leaked(t, ctx, op, func(h *operatev1.Held) bool { return h.GetEngine() == "d1" && h.GetKind() == "target" })
	if leaked.GetHandoff() != cut.Handoff || leaked.GetOwner() != "" || leaked.GetBlocks() == 0 {
		t.Errorf("d1 keeps %v", leaked)
	}
	if out := cli.run(t, ctx, "leaks"); !strings.Contains(out, cut.Handoff) || !strings.Contains(out, "nobody") {
		t.Errorf("surehand leaks tells\n%s", out)
	}
	s.unreleased(t, ctx, "d1", func(v string) bool { return v == fmt.Sprint(leaked.GetBlocks()) })
	if err := s.Process("d1").Resume(); err != nil {
		t.Fatal(err)
	}
	s.unreleased(t, ctx, "d1", func(v string) bool { return v == "0" })

	// A promise that stands for nothing.
	if err := s.AtRest(ctx, restWithin); err != nil {
		t.Fatal(err)
	}
	forget, err := s.Promise(ctx, "d2", 5, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if p := s.leaked(t, ctx, op, func(h *operatev1.Held) bool { return h.GetEngine() == "d2" }); p.GetKind() != "promise" || p.GetBlocks() != 5 || p.GetOwner() != "" {
		t.Errorf("d2's ledger keeps %v", p)
	}
	s.unreleased(t, ctx, "d2", func(v string) bool { return v == "5" })
	if err := forget(ctx); err != nil {
		t.Fatal(err)
	}
	s.unreleased(t, ctx, "d2", func(v string) bool { return v == "0" })
	if out := cli.run(t, ctx, "leaks"); out != "nothing is held for nobody\n" {
		t.Errorf("at rest surehand leaks tells\n%s", out)
	}
	if out := cli.run(t, ctx, "leaks", "--all"); out != "nothing is held\n" {
		t.Errorf("at rest is held\n%s", out)
	}
}

// leaked waits for something that is held for nobody.
func (s *stage) leaked(t *testing.T, ctx context.Context, op operatev1.OperatorClient, want func(*operatev1.Held) bool) *operatev1.Held {
	t.Helper()
	for {
		l, err := op.Leaks(ctx, &operatev1.LeaksRequest{})
		if err != nil {
			all, why := op.Leaks(within(t, requestWithin), &operatev1.LeaksRequest{All: true})
			t.Fatalf("%v; held by anyone: %v %v", err, all, why)
		}
		if i := slices.IndexFunc(l.GetHeld(), want); i >= 0 {
			return l.GetHeld()[i]
		}
	}
}

// unreleased waits for what a gateway's metric says of an engine.
func (s *stage) unreleased(t *testing.T, ctx context.Context, engine string, want func(string) bool) {
	t.Helper()
	const name = "surehand_kv_blocks_unreleased"
	last := ""
	for {
		text, err := scrape(ctx, s.HTTP["g2"])
		if ctx.Err() != nil {
			t.Fatalf("%s of %s is %q", name, engine, last)
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text) {
			if v, ok := strings.CutPrefix(line, fmt.Sprintf("%s{engine=%q} ", name, engine)); ok {
				if last = strings.TrimSpace(v); want(last) {
					return
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func scrape(ctx context.Context, address string) (text string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		return "", err
	}
	raw, err := io.ReadAll(resp.Body)
	return string(raw), errors.Join(err, resp.Body.Close())
}
