package handoff

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestTranscripts replays testdata/*.txt: commands to two D daemons, one P
// daemon, two readers and a coordinator, and what they answer. Run with
// -rewrite to accept a change of the protocol, then read the diff as prose.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := newStage(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			first := []string{d.Cmd}
			for _, a := range d.CmdArgs {
				first = append(first, a.String())
			}
			lines := []string{strings.Join(first, " ")}
			if d.Input != "" {
				lines = append(lines, strings.Split(d.Input, "\n")...)
			}
			var out strings.Builder
			for _, l := range lines {
				out.WriteString(s.do(l))
			}
			return out.String()
		})
	})
}

// stage is the small world of a transcript. Commands:
//
//	d0 EVENT ATTEMPT [piece=N] [question=N] [grant=N] [token=ATTEMPT] [manifest=other] [inc=N]
//	d0 pull ATTEMPT          post and land every piece, verify
//	d0 validate ATTEMPT      ask, P answers, yes or no
//	d0 free|forget ATTEMPT ; d0 tick DURATION ; d0 restart [adopt ATTEMPT]
//	p EVENT ATTEMPT [piece=N] [digest=N] [inc=N] ; p prefill ATTEMPT ; p free ATTEMPT ; p tick DURATION ; p restart
//	g0 deliver|give-up|newest ATTEMPT ; g0 restart
//	w start ATTEMPT ; w STEP [code=C] [verdict=V] [by=g0] [next=ATTEMPT] [of=ATTEMPT]
//	w cancel ; w ended [code=C] ; w lost by=g0 ; w reader g1
//	pin|unpin BLOCK grant=N
//	ledger total=N ; ledger reserve|release|rebuild ATTEMPT [blocks=N] ; ledger tick DURATION
//	states
type stage struct {
	t     *testing.T
	now   Instant
	td    map[string]*Targets
	tp    *Sources
	gate  map[string]*Reading
	gen   map[string]Incarnation
	coord *Coordinator
	token map[string]Token
	grant map[string]GrantID
	plans map[string]Plan
	pins  Pins
	room  Capacity
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, td: map[string]*Targets{}, gate: map[string]*Reading{"g0": {}, "g1": {}},
		gen: map[string]Incarnation{"d0": 1, "d1": 1, "p": 1, "g0": 1, "g1": 1},
		tp:  NewSources("p", 1), token: map[string]Token{}, grant: map[string]GrantID{}, plans: map[string]Plan{}}
	s.td["d0"], s.td["d1"] = NewTargets("d0", 1), NewTargets("d1", 1)
	for _, p := range []struct {
		name string
		e    Epoch
		n    Nonce
		d    NodeID
		body byte
	}{{"e1", 1, 0xa, "d0", 1}, {"e1b", 1, 0xb, "d0", 1}, {"e1c", 1, 0xc, "d1", 2}, {"e1d", 1, 0x1d, "d1", 1}, {"e1e", 1, 0x1e, "d1", 1}, {"e2", 2, 0xd, "d1", 1}, {"e2b", 2, 0xe, "d0", 1}, {"e3", 3, 0xf, "d0", 1}} {
		s.plans[p.name] = Plan{Attempt: Attempt{"r", p.e, p.n}, P: Seat{"ep", "p", 1}, D: Seat{EngineID("e" + p.d), p.d, 1},
			Reader: Reader{"g0", 1, 1}, BodyDigest: Digest{p.body}}
	}
	return s
}

func (s *stage) name(a Attempt) string {
	for _, n := range []string{"e1", "e1b", "e1c", "e1d", "e1e", "e2", "e2b", "e3"} {
		if s.plans[n].Attempt == a {
			return n
		}
	}
	return a.String()
}

var stageShape = Shape{Revision: "m", Layout: Digest{9}, Tokens: 32, Groups: []Group{{"kv", 1, 2, 64}}}

func manifestOf(a Attempt) Digest {
	return Manifest{Attempt: a, Shape: stageShape, Digests: []uint32{7, 7}}.Digest()
}

// do runs one line and gives what a reader wants to see of it.
func (s *stage) do(line string) string {
	f := strings.Fields(line)
	arg := map[string]string{}
	var words []string
	for _, w := range f {
		if k, v, ok := strings.Cut(w, "="); ok {
			arg[k] = v
		} else {
			words = append(words, w)
		}
	}
	words = append(words, "", "", "")
	switch who := words[0]; {
	case who == "states":
		return s.states()
	case who == "pin", who == "unpin":
		return s.pin(who, uint32(s.number(words[1], 0)), GrantID(s.number(arg["grant"], 0)))
	case who == "ledger":
		return s.ledger(words[1], words[2], arg)
	case who == "w":
		return s.worker(words[1], words[2], arg)
	case s.gate[who] != nil:
		return s.reader(who, words[1], words[2])
	case who == "p":
		return s.p(words[1], words[2], arg)
	case s.td[who] != nil:
		return s.d(who, words[1], words[2], words[3], arg)
	}
	s.t.Fatalf("unknown command %q", line)
	return ""
}

func (s *stage) number(v string, other uint64) uint64 {
	if v == "" {
		return other
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func targetEvent(name string) (TargetEvent, bool) {
	for e := range targetEvents {
		if e.String() == name {
			return e, true
		}
	}
	return 0, false
}

func sourceEvent(name string) (SourceEvent, bool) {
	for e := range sourceEvents {
		if e.String() == name {
			return e, true
		}
	}
	return 0, false
}

func stepNamed(name string) (Step, bool) {
	st := Step(name)
	return st, st.index() >= 0
}

func codeNamed(name string) Code {
	if name == "" {
		return CodeNone
	}
	return ParseCode(name)
}

func line(format string, args ...any) string { return fmt.Sprintf(format, args...) + "\n" }
