package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// alone is a stream that reads epoch 1 of run "r".
func alone(t *testing.T) (s *stream, ended *[]string) {
	t.Helper()
	var open atomic.Int64
	ended = &[]string{}
	s = newStream("t", "id", handoff.Digest{1}, &open, func(_ *stream, outcome string) { *ended = append(*ended, outcome) })
	s.role, s.in.Plan.Attempt = roleReads, attempt(1)
	return s, ended
}

func attempt(e handoff.Epoch) handoff.Attempt {
	return handoff.Attempt{Handoff: "r", Epoch: e, Nonce: handoff.Nonce(e)}
}

func token(position uint32) Event { return Event{Position: position, Tokens: 1, Text: "x"} }

func TestBytesOfAGivenUpAttemptAreDropped(t *testing.T) {
	s, _ := alone(t)
	if s.giveUp(attempt(1)) != handoff.ReaderGivenUp {
		t.Fatal("not given up")
	}
	if err := s.deliver(attempt(1), token(0)); !errors.Is(err, errGivenUp) || s.heard() {
		t.Errorf("delivered all the same: %v", err)
	}
	if err := s.deliver(attempt(2), token(0)); err != nil {
		t.Errorf("the next attempt: %v", err)
	}
}

func TestAnAttemptBeingDeliveredIsNotGivenUp(t *testing.T) {
	s, _ := alone(t)
	if err := s.deliver(attempt(1), token(0)); err != nil {
		t.Fatal(err)
	}
	if got := s.giveUp(attempt(1)); got != handoff.ReaderDelivering {
		t.Errorf("answered %s", got)
	}
	if err := s.deliver(attempt(2), token(1)); err == nil {
		t.Error("bytes of two attempts in one stream")
	}
}

func TestOfAByteAndAGiveUpAtOnceOneWins(t *testing.T) {
	for range 200 {
		s, _ := alone(t)
		var wg sync.WaitGroup
		var delivered error
		var state handoff.ReaderState
		wg.Go(func() { delivered = s.deliver(attempt(1), token(0)) })
		wg.Go(func() { state = s.giveUp(attempt(1)) })
		wg.Wait()
		if (delivered == nil) == (state == handoff.ReaderGivenUp) {
			t.Fatalf("delivered %v and %s", delivered == nil, state)
		}
	}
}

func TestAGapOrARepeatIsNeverDelivered(t *testing.T) {
	s, _ := alone(t)
	for _, position := range []uint32{1, 0, 0, 2, 1} {
		err := s.deliver(attempt(1), token(position))
		if want, _ := s.place(attempt(1)); (err == nil) != (position+1 == want) && handoff.CodeOf(err) != handoff.CodeInternal {
			t.Errorf("position %d: %v", position, err)
		}
	}
	if n, _ := s.place(attempt(1)); n != 2 {
		t.Errorf("%d tokens", n)
	}
}

func TestANewerPlanSupersedesAndARepeatIsNotFresh(t *testing.T) {
	s, _ := alone(t)
	detached := 0
	plan := func(e handoff.Epoch) (handoff.Attempt, bool, error) {
		return s.plan(handoff.Plan{Attempt: attempt(e)}, steps.Route{}, func() { detached++ })
	}
	if old, fresh, err := plan(1); !fresh || err != nil || old.Epoch != 0 {
		t.Errorf("first: %v %v %v", old, fresh, err)
	}
	if _, fresh, err := plan(1); fresh || err != nil {
		t.Errorf("repeat: %v %v", fresh, err)
	}
	if old, fresh, err := plan(2); !fresh || err != nil || old != attempt(1) || detached != 1 {
		t.Errorf("next: %v %v %v, detached %d", old, fresh, err, detached)
	}
	if s.giveUp(attempt(1)) != handoff.ReaderGivenUp {
		t.Error("the superseded attempt is not given up")
	}
	if _, _, err := plan(1); handoff.CodeOf(err) != handoff.CodeStaleEpoch {
		t.Errorf("older: %v", err)
	}
	if _, _, err := s.plan(handoff.Plan{Attempt: handoff.Attempt{Handoff: "other", Epoch: 3, Nonce: 1}}, steps.Route{}, func() {}); handoff.CodeOf(err) != handoff.CodeGone {
		t.Errorf("another run's: %v", err)
	}
	s.fail(handoff.Errorf(handoff.CodeCancelled, ""))
	if _, _, err := plan(3); handoff.CodeOf(err) != handoff.CodeGone || detached != 2 {
		t.Errorf("over: %v, detached %d", err, detached)
	}
}

func TestAStreamEndsOnce(t *testing.T) {
	s, ended := alone(t)
	s.fail(handoff.Errorf(handoff.CodeEngine, "first"))
	s.fail(handoff.Errorf(handoff.CodeCancelled, "second"))
	s.repeat(Event{Finish: "stop"})
	if _, _, left := s.leave(handoff.Errorf(handoff.CodeDeadline, "third"), nil); !left || len(s.events) != 1 || s.events[0].Err.Detail != "first" {
		t.Errorf("events %+v", s.events)
	}
	if len(*ended) != 1 || (*ended)[0] != "engine" || s.open.Load() != 0 {
		t.Errorf("ended %v, %d open", *ended, s.open.Load())
	}
}

func TestAFollowerReadsFromTheBeginning(t *testing.T) {
	s, _ := alone(t)
	if err := s.deliver(attempt(1), token(0)); err != nil {
		t.Fatal(err)
	}
	f := s.follow(true)
	defer f.Close()
	if e, err := f.Next(t.Context()); err != nil || e.Text != "x" {
		t.Errorf("%+v, %v", e, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Next(ctx); handoff.CodeOf(err) != handoff.CodeCancelled {
		t.Errorf("a client that left: %v", err)
	}
	go s.repeat(Event{Finish: "stop", Position: 1})
	if e, err := f.Next(t.Context()); err != nil || e.Finish != "stop" {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err := f.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

func hubOf(limit int) *hub { return newHub(limit, time.Hour, func(*stream, string) {}) }

func TestTheHubIsBounded(t *testing.T) {
	h := hubOf(2)
	for i := range 2 {
		if _, _, _, err := h.join("t", fmt.Sprint(i), handoff.Digest{1}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, _, err := h.join("t", "2", handoff.Digest{1}); handoff.CodeOf(err) != handoff.CodeCapacity {
		t.Errorf("over the limit: %v", err)
	}
	if _, _, made, err := h.join("t", "1", handoff.Digest{1}); err != nil || made {
		t.Errorf("joining needs no room: %v", err)
	}
	h.find("t", "0").fail(handoff.Errorf(handoff.CodeEngine, ""))
	if _, _, _, err := h.join("t", "2", handoff.Digest{1}); err != nil {
		t.Errorf("after one ended: %v", err)
	}
}

func TestARefusedStreamGivesItsKeyBackAndStillAnswersItsWorkflow(t *testing.T) {
	h := hubOf(8)
	_, s, _, err := h.join("t", "k", handoff.Digest{1})
	if err != nil {
		t.Fatal(err)
	}
	h.named("r", s)
	s.fail(handoff.Errorf(handoff.CodeCapacity, ""))
	_, again, made, err := h.join("t", "k", handoff.Digest{2})
	if err != nil || !made || again == s || h.run("r") != s {
		t.Errorf("%v, made %v", err, made)
	}
	if h.unnamed("r", again); h.run("r") != s {
		t.Error("another stream's name was taken")
	}
}

func TestASweepKeepsTheNewestWithinTheLimits(t *testing.T) {
	h := hubOf(1 << 20)
	now := time.Now()
	end := func(id string, ago time.Duration, bytes int) *stream {
		f, s, _, err := h.join("t", id, handoff.Digest{1})
		if err != nil {
			t.Fatal(err)
		}
		h.named(handoff.HandoffID(id), s)
		s.repeat(Event{Finish: "stop"})
		s.ended, s.bytes = now.Add(-ago), bytes
		f.Close()
		return s
	}
	end("old", keepEnded+time.Second, 1)
	end("large", 3*time.Second, keepEndedBytes)
	end("fresh", time.Second, 1)
	held := end("followed", keepEnded+time.Hour, 1).follow(true)
	if _, _, _, err := h.join("t", "live", handoff.Digest{1}); err != nil {
		t.Fatal(err)
	}
	h.sweep(now)
	for id, want := range map[string]bool{"old": false, "large": false, "fresh": true, "followed": true, "live": true} {
		if got := h.find("t", id) != nil; got != want {
			t.Errorf("%s kept: %v", id, got)
		}
		if id != "live" {
			if got := h.run(handoff.HandoffID(id)) != nil; got != want {
				t.Errorf("the run of %s kept: %v", id, got)
			}
		}
	}
	held.Close()
	if h.sweep(now); h.find("t", "followed") != nil {
		t.Error("kept after its last follower left")
	}
	for i := range keepEndedCount + 3 {
		end(fmt.Sprintf("n%d", i), time.Duration(i)*time.Millisecond, 0)
	}
	h.sweep(now)
	if h.find("t", "n0") == nil || h.find("t", fmt.Sprintf("n%d", keepEndedCount+2)) != nil {
		t.Error("the oldest over the limit are not what was dropped")
	}
}
