package connector

import (
	"context"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
	"github.com/surehand/surehand/workers/vllmenv"
)

// asked is a request that runs.
type running struct {
	leave context.CancelFunc
	ended chan traffic.Answer
}

func (e *engines) start(t *testing.T, a traffic.Ask) running {
	t.Helper()
	a.Model = vllmenv.Served
	return e.send(t, a)
}

func (e *engines) send(t *testing.T, a traffic.Ask) running {
	t.Helper()
	ctx, leave := context.WithTimeout(t.Context(), answerWithin)
	t.Cleanup(leave)
	r := running{leave, make(chan traffic.Answer, 1)}
	go func() { r.ended <- e.gateway().Send(ctx, a) }()
	return r
}

// reserved waits until D holds a target that is not committed.
func (r *engines) reserved(t *testing.T, id string) {
	t.Helper()
	await(t, id+" holds a target", func() bool {
		e, err := r.Engine(id)
		if err != nil {
			return false
		}
		d, err := e.Describe(within(t))
		return err == nil && d.TargetsHeld > 0
	})
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(restWithin); !is(); {
		if time.Now().After(end) {
			t.Fatal("not within the time: " + what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// again starts a vLLM that was killed, where it was.
func (e *engines) again(t *testing.T, id string) {
	t.Helper()
	o := e.vllm[id].Options
	next, err := e.host.Start(t.Context(), o)
	must(t, err)
	e.vllm[id] = next
}

const long = 200 // tokens: a second or more of decode

func TestAClientThatLeavesLeavesNothing(t *testing.T) {
	ask := func() traffic.Ask { return traffic.Ask{Prompt: promptOf(t, 200), MaxTokens: 8, Decode: "d1"} }
	for where, stands := range map[string]interface {
		Pause() error
		Resume() error
	}{
		"before P was asked":                      rig.Process("p1"), // the front of P
		"while P computes":                        rig.vllm["p1"],
		"while P's transferd takes no word of it": rig.Process("tp1"),
	} {
		t.Run(where, func(t *testing.T) {
			must(t, stands.Pause())
			r := rig.start(t, ask())
			rig.reserved(t, "d1")
			r.leave()
			<-r.ended
			must(t, stands.Resume())
			atRest(t)
		})
	}
	t.Run("between P and D", func(t *testing.T) {
		must(t, rig.vllm["p1"].Pause())
		mark, r := rig.Mark(), rig.start(t, ask())
		rig.reserved(t, "d1")
		must(t, rig.Process("td1").Pause()) // which would read it
		must(t, rig.vllm["p1"].Resume())
		_, err := rig.Await(within(t), mark, func(e fleet.Event) bool { return e.Became("source", handoff.SourceSealed.String()) })
		must(t, err)
		r.leave()
		<-r.ended
		must(t, rig.Process("td1").Resume())
		atRest(t)
	})
	t.Run("in the transfer", func(t *testing.T) {
		ctx, leave := context.WithCancel(within(t))
		a := ask()
		a.Model = vllmenv.Served
		if _, err := fault.Strike(ctx, rig.Fleet, rig.gateway(), a, fault.Transfer, func(fleet.Event) error { leave(); return nil }); err != nil {
			t.Error(err)
		}
		atRest(t)
	})
	t.Run("in the decode", func(t *testing.T) {
		var r running
		came := make(chan struct{})
		r = rig.start(t, traffic.Ask{Prompt: promptOf(t, 200), MaxTokens: long, Decode: "d1", OnPiece: func(n int) {
			if n == 3 {
				close(came)
			}
		}})
		<-came
		r.leave()
		<-r.ended
		atRest(t)
	})
}

func TestAKilledPEndsTypedAndIsWellAgain(t *testing.T) {
	must(t, rig.vllm["p1"].Pause())
	r := rig.start(t, traffic.Ask{Prompt: promptOf(t, 200), MaxTokens: 8})
	await(t, "a reservation", func() bool { return len(rig.HeldMemory(within(t))) > 0 })
	must(t, rig.vllm["p1"].Kill())
	a := <-r.ended
	t.Log("the client got: ", a.Status, a.Failure)
	if err := a.Typed(); err != nil || a.Text != "" {
		t.Errorf("%q, %v", a.Text, err)
	}
	rig.again(t, "p1")
	atRest(t)
	sameAsPlain(t, traffic.Ask{Prompt: promptOf(t, 200), MaxTokens: 8})
}

func TestADThatDiesBeforeTheCommitIsReplaced(t *testing.T) {
	prompt := promptOf(t, 200)
	want := plain(t, traffic.Ask{Prompt: prompt, MaxTokens: 8})
	must(t, rig.vllm["p1"].Pause())
	r := rig.start(t, traffic.Ask{Prompt: prompt, MaxTokens: 8})
	var d string
	await(t, "a reservation", func() bool {
		for _, id := range []string{"d1", "d2"} {
			if e, err := rig.Engine(id); err == nil {
				if got, err := e.Describe(within(t)); err == nil && got.TargetsHeld > 0 {
					d = id
				}
			}
		}
		return d != ""
	})
	must(t, rig.vllm[d].Kill())
	must(t, rig.vllm["p1"].Resume())
	a := <-r.ended
	t.Logf("%s died; the client got: %d %q %+v", d, a.Status, a.Text, a.Failure)
	if err := a.Whole(); err != nil || a.Text != want.Text {
		t.Errorf("%v, %q, want %q", err, a.Text, want.Text)
	}
	rig.again(t, d)
	atRest(t)
}

func TestADThatDiesInTheDecodeBreaksItsStreamTyped(t *testing.T) {
	prompt := promptOf(t, 200)
	want := plain(t, traffic.Ask{Prompt: prompt, MaxTokens: long})
	a := strike(t, prompt, func() { must(t, rig.vllm["d1"].Kill()) })
	t.Logf("the client got %d pieces, then %+v", a.Pieces, a.Failure)
	if err := a.Typed(); err != nil || a.Failure == nil || a.Failure.Position == nil {
		t.Errorf("%v, %+v", err, a.Failure)
	}
	if len(a.Text) > len(want.Text) || want.Text[:len(a.Text)] != a.Text {
		t.Errorf("%q is no beginning of %q", a.Text, want.Text)
	}
	rig.again(t, "d1")
	atRest(t)
}

// strike sends a long ask to d1 and strikes after its third piece.
func strike(t *testing.T, prompt string, blow func()) traffic.Answer {
	t.Helper()
	struck := make(chan struct{})
	r := rig.start(t, traffic.Ask{Prompt: prompt, MaxTokens: long, Decode: "d1", OnPiece: func(n int) {
		if n == 3 {
			close(struck)
		}
	}})
	select {
	case <-struck:
	case a := <-r.ended:
		t.Fatalf("it ended before: %+v", a)
	}
	blow()
	return <-r.ended
}

func TestATransferdThatDiesInTheDecodeIsAdopted(t *testing.T) {
	prompt := promptOf(t, 200)
	want := plain(t, traffic.Ask{Prompt: prompt, MaxTokens: long})
	a := strike(t, prompt, func() { must(t, rig.Process("td1").Restart(t.Context())) })
	if err := a.Typed(); err != nil {
		t.Error(err)
	}
	if a.Failure == nil && a.Text != want.Text {
		t.Errorf("%q, want %q", a.Text, want.Text)
	}
	t.Logf("the client got %d pieces, %+v", a.Pieces, a.Failure)
	atRest(t)
}

// The front's end is the end of its requests to vLLM, which then stops.
func TestAFrontThatDiesInTheDecodeBreaksItsStreamTyped(t *testing.T) {
	prompt := promptOf(t, 200)
	a := strike(t, prompt, func() { must(t, rig.Process("d1").Kill()) })
	t.Logf("the client got %d pieces, then %+v", a.Pieces, a.Failure)
	if err := a.Typed(); err != nil || a.Failure == nil {
		t.Errorf("%v, %+v", err, a.Failure)
	}
	must(t, rig.Process("d1").Start(t.Context()))
	atRest(t)
}

func TestATransferdThatDiesBeforeTheCommitIsPlannedAnew(t *testing.T) {
	for _, name := range []string{"td1", "tp1"} {
		t.Run(name, func(t *testing.T) {
			prompt := promptOf(t, 200)
			want := plain(t, traffic.Ask{Prompt: prompt, MaxTokens: 8})
			must(t, rig.vllm["p1"].Pause())
			r := rig.start(t, traffic.Ask{Prompt: prompt, MaxTokens: 8})
			await(t, "a reservation", func() bool { return len(rig.HeldMemory(within(t))) > 0 })
			must(t, rig.Process(name).Kill())
			must(t, rig.Process(name).Start(t.Context()))
			must(t, rig.vllm["p1"].Resume())
			a := <-r.ended
			t.Logf("the client got: %d %q %+v", a.Status, a.Text, a.Failure)
			if err := a.Typed(); err != nil {
				t.Error(err)
			}
			if a.Failure == nil && a.Text != want.Text {
				t.Errorf("%q, want %q", a.Text, want.Text)
			}
			atRest(t)
		})
	}
}

func TestAGatewayThatDiesInTheDecodeLeavesNothing(t *testing.T) {
	g := rig.Process("g1")
	a := strike(t, promptOf(t, 200), func() { must(t, g.Kill()) })
	t.Logf("the client got %d pieces, then %v %+v", a.Pieces, a.Broken, a.Failure)
	if a.Broken == nil {
		t.Error("its connection did not break")
	}
	must(t, g.Start(t.Context()))
	atRest(t)
	sameAsPlain(t, traffic.Ask{Prompt: promptOf(t, 200), MaxTokens: 8})
}
