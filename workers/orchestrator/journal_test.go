package orchestrator

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/surehand/surehand/activities/claimcheck/memcheck"
	"github.com/surehand/surehand/activities/journal"
	"github.com/surehand/surehand/activities/journal/redisjournal"
	"github.com/surehand/surehand/activities/world"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// journalled is some gateways that share a journal and a claim check, and a
// worker that goes on whoever of them dies.
func journalled(t *testing.T, names ...string) (*fleetOf, *miniredis.Miniredis) {
	t.Helper()
	store := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: store.Addr(), MaxRetries: -1, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { client.Close() })
	check := memcheck.New(nil)
	f := gateways(t)
	shared := func(c *Config) {
		c.Bodies, c.Journal, c.Comeback = check, redisjournal.New(client, nil), 10*time.Second
	}
	worker := f.add("w", shared)
	for _, n := range names {
		f.add(n, shared)
	}
	f.temporal.drive = func(r *durableRun) {
		soon(func() bool {
			_, err := check.Body(context.Background(), "t", r.in.Plan.Attempt.Handoff)
			return err == nil
		})
		handle(f.temporal, worker)(r)
	}
	f.temporal.reads = func(r *durableRun, at steps.ReaderAt) {
		f.temporal.mu.Lock()
		token, in := r.token, r.in
		f.temporal.mu.Unlock()
		if err := worker.cfg.Remote.Planned(context.Background(), at, in.Plan, in.Route, token); err != nil {
			t.Errorf("the new reader was not told: %v", err)
		}
	}
	return f, store
}

func codeOf(e Event) handoff.Code {
	if e.Err == nil {
		return handoff.CodeNone
	}
	return e.Err.Code
}

func kept(key string) Request {
	r := ask(key)
	r.Journal, r.Kind = true, "text"
	return r
}

// some reads n events and leaves the stream as it is.
func some(t *testing.T, f Follower, n int) (text string, last Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range n {
		e, err := f.Next(ctx)
		if err != nil || e.Err != nil {
			t.Fatalf("after %q: %+v %v", text, e, err)
		}
		text, last = text+e.Text, e
	}
	return text, last
}

func (f *fleetOf) attach(gate, id string, from From) Attached {
	f.t.Helper()
	a, err := f.gate(gate).Attach(f.t.Context(), "t", id, from)
	if err != nil {
		f.t.Fatal(err)
	}
	return a
}

// rest reads to the end, from a position that is not the first.
func rest(t *testing.T, f Follower, position uint32) (string, Event) {
	t.Helper()
	_, first := some(t, f, 1)
	if first.Position != position {
		t.Errorf("it goes on at %d, not at %d", first.Position, position)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	defer f.Close()
	text, last := first.Text, first
	for !last.Terminal() {
		e, err := f.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		text, last = text+e.Text, e
	}
	return text, last
}

// Its gateway died in the middle; at another gateway the client goes on exactly
// where it stopped, and who asks with the key hears it all from the start.
func TestAClientGoesOnWhereItStoppedAtAnotherGateway(t *testing.T) {
	f, _ := journalled(t, "a", "b", "c")
	_, release := f.w.Hold(world.TokenAt(3))
	fo := f.submit("a", kept("k"))
	text, last := some(t, fo, 3)
	f.kill("a")
	b := f.attach("b", fo.Handoff(), From{Position: last.Position + last.Tokens, Epoch: last.Epoch})
	if !soon(func() bool { return f.temporal.reader("t/"+fo.Handoff()) == "b" }) {
		t.Fatal("history does not name the new reader")
	}
	if b.Kind != "text" || b.Model != world.Model {
		t.Errorf("it is told %+v", b)
	}
	again := f.submit("c", kept("k")) // a live stream of another gateway
	release()
	if tail, end := rest(t, b, 3); text+tail != world.Text || end.Finish != "stop" {
		t.Errorf("%q and then %q, %+v", text, tail, end)
	}
	if whole, end := read(t, again); whole != world.Text || end.Finish != "stop" {
		t.Errorf("by its key: %q %+v", whole, end)
	}
	fo.Close()
	f.clean()
}

// Everything that read it is gone, and so is its history: the journal tells it
// again, by its id and by its key.
func TestAFinishedStreamIsToldAgainFromItsJournal(t *testing.T) {
	f, _ := journalled(t, "a", "b", "c")
	fo := f.submit("a", kept("k"))
	whole, end := read(t, fo)
	id := "t/" + fo.Handoff()
	if !soon(func() bool { return f.temporal.statusOf(id) == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED }) {
		t.Fatal("it does not end")
	}
	f.kill("a")
	f.temporal.mu.Lock()
	delete(f.temporal.runs, id)
	f.temporal.mu.Unlock()
	if tail, last := rest(t, f.attach("b", fo.Handoff(), From{Position: 2, Epoch: 1}), 2); tail != whole[2:] || last.Usage != end.Usage {
		t.Errorf("from position 2: %q %+v", tail, last)
	}
	if text, last := read(t, f.submit("c", kept("k"))); text != whole || last.Usage != end.Usage {
		t.Errorf("by its key: %q %+v", text, last)
	}
	starts := 0
	for _, m := range f.temporal.methods() {
		if m == "start" {
			starts++
		}
	}
	if starts != 1 {
		t.Errorf("%d starts", starts)
	}
	f.clean()
}

func TestWhatWasNotKeptIsGone(t *testing.T) {
	f, store := journalled(t, "a", "b")
	_, release := f.w.Hold(world.TokenAt(3))
	defer release()
	fo := f.submit("a", ask("k")) // no journal
	some(t, fo, 3)
	f.kill("a")
	fo.Close()
	b := f.attach("b", fo.Handoff(), From{Position: 3, Epoch: 1})
	release()
	if e, err := b.Next(t.Context()); err != nil || codeOf(e) != handoff.CodeGone {
		t.Fatalf("%+v %v", e, err)
	}
	b.Close()
	store.FlushAll()
	if _, err := f.gate("b").Attach(t.Context(), "t", "nothing", From{}); handoff.CodeOf(err) != handoff.CodeGone {
		t.Error(err)
	}
	if _, err := f.gate("b").Attach(t.Context(), "another", fo.Handoff(), From{}); handoff.CodeOf(err) != handoff.CodeGone {
		t.Error("another tenant's: ", err)
	}
	f.clean()
}

func TestAPositionThatIsNoneIsRefused(t *testing.T) {
	f, _ := journalled(t, "a")
	fo := f.submit("a", kept("k"))
	read(t, fo)
	b := f.attach("a", fo.Handoff(), From{Position: 99, Epoch: 1})
	defer b.Close()
	if e, err := b.Next(t.Context()); err != nil || codeOf(e) != handoff.CodeGone {
		t.Fatalf("%+v %v", e, err)
	}
}

// A journal that cannot be written does not stop a stream; nothing is shown
// before it was tried.
func TestAStreamGoesOnWithoutItsJournal(t *testing.T) {
	f, store := journalled(t, "a")
	_, release := f.w.Hold(world.TokenAt(2))
	fo := f.submit("a", kept("k"))
	text, _ := some(t, fo, 2)
	store.FlushAll()
	release()
	tail, end := rest(t, fo, 2)
	if text+tail != world.Text || end.Finish != "stop" {
		t.Errorf("%q %+v", text+tail, end)
	}
	f.clean()
}

// A reader that was passed over while it slept shows nobody what it could not
// write: those tokens are its successor's.
func TestAReaderThatWasPassedOverShowsNothingMore(t *testing.T) {
	f, _ := journalled(t, "a")
	_, release := f.w.Hold(world.TokenAt(2))
	_, end := f.w.Hold(world.TokenAt(3)) // before it the reader hears that it is one no more
	fo := f.submit("a", kept("k"))
	text, _ := some(t, fo, 2)
	o := f.gate("a")
	attempt := o.hub.find("t", fo.Handoff()).input().Plan.Attempt
	run := attempt.Handoff
	if _, err := o.cfg.Journal.Open(t.Context(), journal.Name{Tenant: "t", ID: fo.Handoff()}, journal.Writer{Run: run, Number: 2}, journal.About{}, time.Hour); err != nil {
		t.Fatal(err)
	}
	release()
	e, err := fo.Next(t.Context())
	if err != nil || codeOf(e) != handoff.CodeStreamBroken || !strings.Contains(e.Err.Detail, "another gateway") {
		t.Fatalf("after %q: %+v %v", text, e, err)
	}
	fo.Close()
	end()
	// Its end is the new reader's to tell, and there is none here: without it the
	// handoff would run until its own time is over.
	if err := f.temporal.SignalWorkflow(t.Context(), "t/"+fo.Handoff(), "", steps.SignalEnded, steps.Ended{Attempt: attempt, Code: handoff.CodeStreamBroken.String()}); err != nil {
		t.Error(err)
	}
	f.clean()
}

// A journalled handoff waits a while for a client that left.
func TestAClientThatComesBackInTimeFindsItsStreamAlive(t *testing.T) {
	f, _ := journalled(t, "a")
	_, release := f.w.Hold(world.TokenAt(2))
	fo := f.submit("a", kept("k"))
	some(t, fo, 2)
	fo.Close()
	b := f.attach("a", fo.Handoff(), From{Position: 2, Epoch: 1})
	release()
	if tail, end := rest(t, b, 2); tail != world.Text[2:] || end.Finish != "stop" {
		t.Errorf("%q %+v", tail, end)
	}
	f.clean()
}

func TestAClientThatStaysAwayIsGivenUp(t *testing.T) {
	f, _ := journalled(t)
	f.add("a", func(c *Config) {
		*c = f.gate("w").cfg
		c.Process, c.Remote, c.Comeback = "a", peers{f, "a"}, time.Millisecond
	})
	_, release := f.w.Hold(world.TokenAt(2))
	defer release()
	fo := f.submit("a", kept("k"))
	some(t, fo, 2)
	fo.Close()
	if !soon(func() bool {
		for _, m := range f.temporal.methods() {
			if m == "cancel" {
				return true
			}
		}
		return false
	}) {
		t.Error("the workflow was not told")
	}
	f.clean()
}

// A client that left a copy of another gateway's stream comes back to the same
// copy's gateway: it is copied anew.
func TestACopyThatWasLeftIsMadeAnew(t *testing.T) {
	f, _ := journalled(t, "a", "b")
	_, release := f.w.Hold(world.TokenAt(3))
	fo := f.submit("a", kept("k"))
	some(t, fo, 3)
	first := f.attach("b", fo.Handoff(), From{})
	some(t, first, 2)
	first.Close()
	for _, again := range []Follower{f.attach("b", fo.Handoff(), From{Position: 2, Epoch: 1}), f.submit("b", kept("k"))} {
		e, err := again.Next(t.Context())
		if err != nil || e.Err != nil {
			t.Fatalf("%+v %v", e, err)
		}
		defer again.Close()
	}
	release()
	if text, end := read(t, f.submit("b", kept("k"))); text != world.Text || end.Finish != "stop" {
		t.Errorf("%q %+v", text, end)
	}
	rest(t, fo, 3)
}

// Going on after D's death is refused at once where no engine rebuilds its state from
// tokens: not first when D is dead.
func TestAResumeIsRefusedWhereNoStateCanBeRebuilt(t *testing.T) {
	f, _ := journalled(t, "a")
	q := kept("k")
	q.Resume = steps.ResumeReplay
	if _, err := f.gates["a"].Submit(t.Context(), q); handoff.CodeOf(err) != handoff.CodeInvalid || !strings.Contains(err.Error(), "rebuilds an answer's state") {
		t.Error(err)
	}
	q.Resume = ""
	if text, _ := read(t, f.submit("a", q)); text != world.Text { // the key is free for the request without it
		t.Error(text)
	}
	f.clean()
}
