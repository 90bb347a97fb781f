package scenario

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

// outcome that a cell of the kill matrix asks for.
type outcome int

const (
	// ends: whole, or with a typed refusal.
	ends outcome = iota
	// whole: nothing else will do.
	whole
	// refuses: the stream ends with a typed error.
	refuses
	// cut: the client's own gateway died; its connection broke.
	cut
)

// held is how long a killed process stays away, unless the answer comes first:
// longer than any lease.
const held = 2*lease + time.Second

// killed is the required outcome of each cell. Before the first token a request
// goes on elsewhere when the protocol can prove the old attempt closed, and
// else is refused; after it nothing is sampled again.
var killed = map[string]map[string]outcome{
	//           reserve          prefill          transfer          commit          decode
	"g1":       {"reserve": cut, "prefill": cut, "transfer": cut, "commit": cut, "decode": cut},
	"p1":       {"reserve": whole, "prefill": whole, "transfer": whole, "commit": whole, "decode": whole},
	"tp1":      {"reserve": whole, "prefill": whole, "transfer": whole, "commit": whole, "decode": whole},
	"d1":       {"reserve": whole, "prefill": whole, "transfer": whole, "commit": ends, "decode": refuses},
	"td1":      {"reserve": ends, "prefill": ends, "transfer": ends, "commit": ends, "decode": ends},
	"redis":    {"reserve": ends, "prefill": ends, "transfer": ends, "commit": whole, "decode": whole},
	"temporal": {"reserve": ends, "prefill": ends, "transfer": ends, "commit": ends, "decode": whole},
}

// victims in the order of the table.
var victims = []string{"g1", "p1", "d1", "tp1", "td1", "redis", "temporal"}

// core are the cells of a run without patience: each victim and each phase.
var core = map[string]string{"g1": "commit", "p1": "prefill", "d1": "decode", "tp1": "transfer", "td1": "reserve", "redis": "transfer", "temporal": "decode"}

var phases = []fault.Phase{fault.Reserve, fault.Prefill, fault.Transfer, fault.Commit, fault.Decode}

// Each process is killed in each phase, one at a time. Before the first token
// the request is answered or refused with a type; after it the stream ends with
// a typed error or is not touched at all. Asked again with its key, through the
// other gateway, it is the same sampling, even where the first gateway died. At
// rest nothing is held.
func TestAnyOneProcessMayDieInAnyPhase(t *testing.T) {
	table := map[string]string{}
	for _, victim := range victims {
		for _, phase := range phases {
			if !patient && core[victim] != phase.Name {
				continue
			}
			t.Run(victim+"/"+phase.Name, func(t *testing.T) {
				s := shared(t)
				table[victim+"/"+phase.Name] = s.kill(t, victim, phase)
			})
		}
	}
	t.Log("\n" + picture(table))
}

func (s *stage) kill(t *testing.T, victim string, phase fault.Phase) string {
	ctx := within(t, 2*requestWithin)
	ask := s.ask(longPrompt, answerLong)
	ask.Key = fmt.Sprintf("kill-%s-%s-%d", victim, phase.Name, time.Now().UnixNano())
	back := s.healLater(t, held)
	defer back()
	struck, err := fault.Strike(ctx, s.Fleet, s.g1(), ask, phase, func(fleet.Event) error { return s.Process(victim).Kill() })
	if err != nil {
		t.Fatal(err)
	}
	required(t, killed[victim][phase.Name], struck.Answer, answerLong)
	ask.Prefill, ask.Decode = "", "" // the one that it named may be the dead one
	again, _ := s.g2().Insist(ctx, ask, held, 200*time.Millisecond)
	// Where the gateway died another worker goes on, and the other gateway reads
	// what it did. At the commit only what was committed sticks: the decode's lease
	// may end before anybody is named to read it.
	if victim == "g1" && phase.Name != "commit" {
		required(t, whole, again, answerLong)
	} else {
		required(t, ends, again, answerLong)
	}
	if again.Whole() == nil && struck.Pieces > 0 && !strings.HasPrefix(again.Text, struck.Text) {
		t.Errorf("the same key again was sampled again: %q after %q", again.Text, struck.Text)
	}
	back()
	s.atRest(t)
	oneOwner(t, s.Since(struck.Mark))
	s.sticks(t, ask, struck)
	s.fine(t, s.g1())
	return verdict(struck.Answer) + " · again: " + verdict(again)
}

// sticks asks once more, at rest: a key whose handoff was committed is never
// answered anew (S13). What is over without a stream may only be refused. Where
// the store lost its claims a head start may compute in vain; it is undone.
func (s *stage) sticks(t *testing.T, ask traffic.Ask, struck fault.Struck) {
	t.Helper()
	committed := fault.Committed(s.Since(struck.Mark))
	m := s.Mark()
	last := s.g2().Send(within(t, requestWithin), ask)
	if err := last.Typed(); err != nil {
		t.Errorf("the same key at rest: %s", err)
	}
	if c := fault.Committed(s.Since(m)); len(committed) > 0 && len(c) > 0 {
		t.Errorf("the same key at rest was answered anew: %v after %v", c, committed)
	}
	s.atRest(t)
}

// healLater brings everything back after a while, or when told.
func (s *stage) healLater(t *testing.T, after time.Duration) (now func()) {
	var once sync.Once
	var mending sync.WaitGroup
	mend := func() {
		once.Do(func() {
			if err := s.Heal(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	mending.Add(1)
	timer := time.AfterFunc(after, func() { defer mending.Done(); mend() })
	return func() {
		if timer.Stop() {
			mending.Done()
		}
		mend()
		mending.Wait()
	}
}

func required(t *testing.T, want outcome, a traffic.Answer, tokens int) {
	t.Helper()
	got, err := a.Numbered()
	if err != nil {
		t.Errorf("the stream is not one sampling: %s", err)
	}
	switch want {
	case whole:
		err = a.Counted(tokens)
	case ends:
		err = a.Typed()
	case refuses:
		if err = a.Typed(); err == nil && a.Failure == nil {
			err = fmt.Errorf("whole, %d tokens", got)
		}
	case cut:
		if err = nil; a.Broken == nil {
			err = a.Typed()
		}
	}
	if err != nil {
		t.Errorf("a client saw: %s", err)
	}
}

// picture is the matrix as text.
func picture(table map[string]string) string {
	var out strings.Builder
	for _, victim := range victims {
		for _, phase := range phases {
			if cell, ok := table[victim+"/"+phase.Name]; ok {
				fmt.Fprintf(&out, "%-9s %-9s %s\n", victim, phase.Name, cell)
			}
		}
	}
	return out.String()
}
