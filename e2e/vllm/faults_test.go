package vllm

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/pair"
	"github.com/surehand/surehand/workers/vllmenv"
)

// sent is a request under way.
type sent struct {
	leave context.CancelFunc
	first chan struct{} // closed by its first token
	done  chan struct{}
	got   pair.Answer
	err   error
}

func send(t *testing.T, a pair.Ask) *sent {
	ctx, cancel := context.WithTimeout(t.Context(), within)
	s := &sent{leave: cancel, first: make(chan struct{}), done: make(chan struct{})}
	var once sync.Once
	a.OnToken = func(int) { once.Do(func() { close(s.first) }) } // the first event may carry several
	go func() {
		defer close(s.done)
		s.got, s.err = a.Send(ctx, rig.URL())
	}()
	t.Cleanup(cancel)
	return s
}

// reaches waits until the request gave its first token.
func (s *sent) reaches(t *testing.T) {
	t.Helper()
	select {
	case <-s.first:
	case <-s.done:
	}
	select {
	case <-s.first:
	default:
		t.Fatal("it ended before its first token:", s.got, s.err)
	}
}

// longest is how many tokens a long answer has: for longer than a test needs.
const longest = 3600

func long(t *testing.T) pair.Ask { return pair.Ask{Prompt: text(t, 0, 2), Tokens: longest} }

// killed kills an engine in the middle of a decode, and brings it up again on the
// same port. What the client got is told.
func killed(t *testing.T, e **vllmenv.Engine, a pair.Ask) pair.Answer {
	t.Helper()
	s := send(t, a)
	s.reaches(t)
	if err := (*e).Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.done
	again, err := rig.Host.Start(t.Context(), (*e).Options)
	if err != nil {
		t.Fatal(err)
	}
	*e = again
	serves(t)
	t.Logf("the client got: %s, %v", s.got.Code, len(s.got.Tokens))
	return s.got
}

func serves(t *testing.T) {
	t.Helper()
	eventually(t, "the pair serves again", func() bool {
		got, err := pair.Ask{Prompt: "Hi", Tokens: 2}.Send(t.Context(), rig.URL())
		return err == nil && got.Ended()
	})
}

func TestADThatIsKilledInItsDecodeEndsTheStreamTyped(t *testing.T) {
	got := killed(t, &rig.D, long(t))
	if got.Broken != nil || got.Code == "" || len(got.Tokens) == 0 {
		t.Errorf("the client got %s", got)
	}
	t.Logf("all blocks were free after %s", rest(t).Round(time.Millisecond))
}

func TestAPThatIsKilledAfterTheTransferCostsNothing(t *testing.T) {
	const tokens = 400 // that D goes on by itself, to their end
	got := killed(t, &rig.P, pair.Ask{Prompt: text(t, 0, 2), Tokens: tokens})
	if !got.Ended() || len(got.Tokens) != tokens {
		t.Errorf("the client got %s", got)
	}
	equal(t, pair.Ask{Prompt: text(t, 1, 2), Tokens: 8})
	rest(t)
}

func TestAGatewayThatIsKilledLeavesNothingBehind(t *testing.T) {
	s := send(t, long(t))
	s.reaches(t)
	g := rig.Fleet.Process(fleet.Gateway)
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.done
	if s.got.Broken == nil {
		t.Errorf("the client got %s", s.got)
	}
	t.Logf("all blocks were free after %s", rest(t).Round(time.Millisecond))
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	equal(t, pair.Ask{Prompt: text(t, 1, 2), Tokens: 8})
}

// Nobody tells P then: its timer does, as documented. The handoff itself, whose D was
// as good as asked, ends once its decode is looked at: nobody reads it.
func TestAGatewayThatIsKilledBetweenPAndDLeavesPToItsTimer(t *testing.T) {
	there, letGo := held(rig.InD)
	defer letGo()
	before := look(t, rig.P.URL).Sum(pair.Expired, "", "")
	s := send(t, pair.Ask{Prompt: text(t, 0, 4), Tokens: 8})
	<-there
	g := rig.Fleet.Process(fleet.Gateway)
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.done
	if s.got.Broken == nil || len(s.got.Tokens) > 0 {
		t.Errorf("the client got %s", s.got)
	}
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	eventually(t, "no handoff is open", func() bool {
		n, err := rig.Fleet.OpenWorkflows(t.Context())
		return err == nil && n == 0
	})
	t.Logf("no handoff was open %s after the gateway was back", time.Since(began).Round(time.Millisecond))
	rest(t)
	if n := look(t, rig.P.URL).Sum(pair.Expired, "", "") - before; n != 1 {
		t.Errorf("%.0f leases ended by P's timer, want this one", n)
	}
	equal(t, pair.Ask{Prompt: text(t, 1, 2), Tokens: 8})
}

func TestAClientThatLeavesInTheDecodeFreesD(t *testing.T) {
	s := send(t, long(t))
	s.reaches(t)
	s.leave()
	<-s.done
	t.Logf("all blocks were free after %s", rest(t).Round(time.Millisecond))
}

func TestWhatAnEngineRejectsIsToldInItsOwnWords(t *testing.T) {
	got, err := pair.Ask{Prompt: text(t, 0, 3), Tokens: 8, More: map[string]any{"temperature": -1}}.Send(t.Context(), rig.URL())
	if err != nil || got.Status != http.StatusBadRequest || !strings.Contains(got.Message, "temperature") {
		t.Errorf("%s, %v", got, err)
	}
	t.Logf("the client got: %s", got)
	before := prefills(t)
	got, err = pair.Ask{Prompt: text(t, 1, 3), Tokens: context4k - 4}.Send(t.Context(), rig.URL()) // and no room for the prompt
	if err != nil || got.Status/100 != 4 || got.Code == "" {
		t.Errorf("%s, %v", got, err)
	}
	t.Logf("the client got: %s", got)
	if n := prefills(t) - before; n != 0 {
		t.Errorf("P computed %.0f prompts for nothing", n)
	}
	rest(t)
}

// held has the next request to a side wait until the test lets it go, or until
// who asks is gone.
func held(f *pair.Front) (there chan struct{}, letGo func()) {
	there, gate := make(chan struct{}), make(chan struct{})
	f.HoldNext(func(ctx context.Context) {
		close(there)
		select {
		case <-gate:
		case <-ctx.Done():
		}
	})
	return there, sync.OnceFunc(func() { close(gate) })
}

func TestAClientThatLeavesBeforeDWasAskedFreesPBeforeItsTimer(t *testing.T) {
	for name, f := range map[string]*pair.Front{"on the way to P": rig.InP, "between P and D": rig.InD} {
		t.Run(name, func(t *testing.T) {
			there, letGo := held(f)
			defer letGo()
			before := look(t, rig.P.URL).Sum(pair.Expired, "", "")
			s := send(t, pair.Ask{Prompt: text(t, 0, 4), Tokens: 8})
			<-there
			s.leave()
			<-s.done
			t.Logf("all blocks were free after %s", rest(t).Round(time.Millisecond))
			if n := look(t, rig.P.URL).Sum(pair.Expired, "", "") - before; n != 0 {
				t.Errorf("%.0f leases ended by P's timer", n)
			}
			eventually(t, "nothing is under way", func() bool {
				c, err := pair.Look(t.Context(), rig.URL())
				return err == nil && c.Has("surehand_native_attempts_open") && c.Sum("surehand_native_attempts_open", "", "") == 0
			})
		})
	}
}

func TestAClientThatLeavesWhilePComputesIsAborted(t *testing.T) {
	there := make(chan error, 1)
	rig.InP.HoldNext(func(context.Context) { there <- rig.P.Pause() })
	s := send(t, pair.Ask{Prompt: text(t, 0, 4), Tokens: 8})
	if err := <-there; err != nil {
		t.Fatal(err)
	}
	s.leave()
	<-s.done
	if err := rig.P.Resume(); err != nil {
		t.Fatal(err)
	}
	t.Logf("all blocks were free after %s", rest(t).Round(time.Millisecond))
	serves(t)
}

// fetching has D ask a P that stands still: the transfer has begun and cannot end.
func fetching(t *testing.T) *sent {
	t.Helper()
	stood := make(chan error, 1)
	rig.InD.HoldNext(func(context.Context) { stood <- rig.P.Pause() })
	s := send(t, pair.Ask{Prompt: text(t, 0, 4), Tokens: 8})
	select {
	case err := <-stood:
		if err != nil {
			t.Fatal(err)
		}
	case <-s.done:
		t.Fatal("D was never asked:", s.got, s.err)
	}
	eventually(t, "D has the request", func() bool {
		c, err := pair.Look(t.Context(), rig.D.URL)
		return err == nil && c.Sum(pair.Running, "", "")+c.Sum(pair.Waiting, "", "") > 0
	})
	return s
}

func TestAClientThatLeavesInTheTransferFreesBoth(t *testing.T) {
	s := fetching(t)
	s.leave()
	<-s.done
	if err := rig.P.Resume(); err != nil {
		t.Fatal(err)
	}
	t.Logf("all blocks were free after %s", rest(t).Round(time.Millisecond))
	serves(t)
}

func TestAPThatIsKilledInTheTransferIsATypedRefusal(t *testing.T) {
	s := fetching(t)
	if err := rig.P.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.done
	t.Logf("the client got: %s", s.got)
	if s.got.Broken != nil || s.got.Code == "" || len(s.got.Tokens) > 0 {
		t.Errorf("the client got %s", s.got)
	}
	again, err := rig.Host.Start(t.Context(), rig.P.Options)
	if err != nil {
		t.Fatal(err)
	}
	rig.P = again
	serves(t)
	t.Logf("all blocks were free after %s", rest(t).Round(time.Millisecond))
}

// killedHeld kills an engine while a request waits in front of a side.
func killedHeld(t *testing.T, f *pair.Front, e **vllmenv.Engine) pair.Answer {
	t.Helper()
	there, letGo := held(f)
	s := send(t, pair.Ask{Prompt: text(t, 0, 4), Tokens: 8})
	<-there
	if err := (*e).Kill(); err != nil {
		t.Fatal(err)
	}
	letGo()
	<-s.done
	again, err := rig.Host.Start(t.Context(), (*e).Options)
	if err != nil {
		t.Fatal(err)
	}
	*e = again
	serves(t)
	t.Logf("the client got: %s", s.got)
	t.Logf("all blocks were free after %s", rest(t).Round(time.Millisecond))
	return s.got
}

func TestAnEngineThatIsKilledBeforeTheFirstTokenIsATypedRefusal(t *testing.T) {
	for name, c := range map[string]struct {
		f *pair.Front
		e **vllmenv.Engine
	}{
		"P in its prefill":       {rig.InP, &rig.P},
		"P before the transfer":  {rig.InD, &rig.P},
		"D as it is being asked": {rig.InD, &rig.D},
	} {
		t.Run(name, func(t *testing.T) {
			got := killedHeld(t, c.f, c.e)
			if got.Broken != nil || got.Code == "" || len(got.Tokens) > 0 {
				t.Errorf("the client got %s", got)
			}
		})
	}
}

// The headline's provocation, at the pace of a test: see e2e/stalekv.
func TestAHoldBeyondPsLeaseIsAnotherEpoch(t *testing.T) {
	before := look(t, rig.P.URL).Sum(pair.Expired, "", "")
	rig.InD.HoldNext(func(ctx context.Context) {
		eventually(t, "the lease lapses", func() bool {
			c, err := pair.Look(ctx, rig.P.URL)
			return err == nil && c.Sum(pair.Expired, "", "") > before
		})
	})
	got := equal(t, pair.Ask{Prompt: text(t, 0, 4), Tokens: 12})
	out, err := rig.Fleet.Outcome(t.Context(), fleet.DefaultTenant, got.Handoff)
	if err != nil || out.Code != "" || out.Attempt.Epoch < 2 {
		t.Errorf("the history says %+v, %v", out, err)
	}
	rest(t)
}
