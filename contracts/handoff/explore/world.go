package explore

import (
	"fmt"

	"github.com/surehand/surehand/contracts/handoff"
)

// world is one state. It is copied shallowly; whoever changes a machine clones
// it first (the mutable methods), so unchanged machines are shared.
type world struct {
	*set
	left fault // faults that may still happen

	td   [2]*handoff.Targets
	tp   *handoff.Sources
	tgt  [many]*handoff.Target // the records, looked up once a change
	src  [many]*handoff.Source
	gw   [2]gateway
	wk   [2]worker
	hist worker // what the history would make a new worker of

	current   int8   // the worker whose tasks the server accepts; -1: none
	started   bool   // Start was accepted
	over      bool   // no workflow is open
	keyFree   bool   // and it ended as one that may be submitted anew
	cancelled bool   // history has the cancel
	named     reader // whom history names, by what the workflow took
	end       uint8  // the reader's report in history
	endOf     uint8  // and its attempt
	endBy     reader // and who reported
	reset     bool   // this run is a reset one

	soup uint64 // messages sent; never taken out
	lost uint8  // answers, where a scenario bounds them

	// Memory, by attempt.
	source  [many][2]handoff.Origin // at P
	digest  [many][2]handoff.Origin // as P announced it
	target  [many][2]handoff.Origin // at D
	wire    [many][2]uint8          // reads posted and not landed
	known   [many]uint8             // pieces whose announcement D's daemon knows
	visible uint8                   // attempts on the engines' flag pages

	// The client.
	conn  uint8 // the gateway that it listens to
	moved bool  // it left gateway 0, and the workflow has not taken that yet
	got   uint8 // attempts of which it has the token
	twice bool  // it has a token twice

	// What the checks remember.
	ever    uint8 // attempts that were visible once: their first token is out
	refused uint8 // attempts that TD answered closed
	fenced  uint8 // attempts given up on which a plan rests
	late    uint8 // attempts planned after the cancel was recorded
	winner  uint8 // the attempt of the accepted Start

	others holding // what another request's attempts hold, where its records do not stand in these tables; not part of the state
	events events  // of the step that led here; not part of the state
	print  uint64  // of the settled state, once it was asked for
}

type reader struct{ gateway, incarnation, number uint8 }

func (r reader) handoff() handoff.Reader {
	return handoff.Reader{Process: gateways[r.gateway], Incarnation: handoff.Incarnation(r.incarnation), Number: uint32(r.number)}
}

// gateway is one serving process: the client's reader. The worker of the same
// index lives in it.
type gateway struct {
	dead        bool
	incarnation uint8
	reading     *handoff.Reading
	held        uint8 // 1 + the attempt whose token it has read and not yet tested
	cleared     uint8 // 1 + the attempt whose token it may write
	wrote       uint8 // attempts whose token it wrote
	gave        uint8 // attempts that this life or an earlier one gave up: its word stands
	told        uint8 // attempts that it reads: those history has, as far as it was told
}

// worker executes the coordinator's commands.
type worker struct {
	coord  *handoff.Coordinator
	tasks  []task
	cancel bool // it has seen the cancel
	ended  bool // it has seen the reader's report
}

// task is one command without its result yet.
type task struct {
	step    stepKind
	attempt uint8
	hard    bool
	to      reader          // of ask-reader
	verdict handoff.Verdict // read, not used yet
}

// events are what the checks want to know of one step.
type events struct {
	writes  []handoff.Write
	frees   []handoff.Free
	reads   []handoff.Read
	answers []handoff.Answer
	undone  []handoff.Attempt
}

// The reader's reports.
const (
	endNone = iota
	endWhole
	endBroken
	endLost
)

type stepKind uint8

const (
	kindMove stepKind = iota // reserve, prefill and transfer together
	kindCommit
	kindUndoTransfer
	kindUndoPrefill
	kindAsk
	kindAwait
	kindPlace
)

// message is a kind of message; with an attempt it is a bit of the soup.
type message uint8

const (
	msgOpen message = iota
	msgPrefill
	msgCommit
	msgUndo
	msgRelease
	msgUndoP
	msgReleaseP
	msgYes
	msgStopped // the holder's word to TP
	msgGiveUp0 // to gateway 0
	msgGiveUp1
)

func (w *world) send(m message, a int) { w.soup |= 1 << (uint(m)*many + uint(a)) }
func (w *world) sent(m message, a int) bool {
	return w.soup&(1<<(uint(m)*many+uint(a))) != 0
}

func bit(a int) uint8 { return 1 << a }

// initial is the state a search begins in: the scenario's first steps are done.
func initial(sc Scenario) (*world, []string) { return initialOf(sc, "r", nil, holding{}) }

// initialOf is that of one request; another one may be there already, in the same
// tables, or alone with what it holds.
func initialOf(sc Scenario, request handoff.HandoffID, beside *world, others holding) (*world, []string) {
	w := origin(sc, request)
	w.others = others
	if beside != nil {
		w.adoptTables(beside)
	}
	var done []string
	for _, kind := range sc.Begin {
		var chosen *world
		w.next(func(x act, _ bool, n *world) {
			if chosen == nil && x.kind == kind && (x.a == e1 || kind == actPlaced) {
				chosen = n
				done = append(done, x.String())
			}
		})
		if chosen == nil {
			panic("the scenario " + sc.Name + " cannot begin: after " + fmt.Sprint(done))
		}
		w = chosen
		w.normalise()
	}
	w.begun, w.lost, w.print = true, 0, 0
	return w, done
}

func origin(sc Scenario, request handoff.HandoffID) *world {
	s := sc.prepare(request)
	w := &world{set: s, left: sc.Faults, current: -1, named: reader{g0, 1, 1}}
	for d := range w.td {
		w.td[d] = handoff.NewTargets(nodes[d], 1)
		w.td[d].Omit = sc.Omit
	}
	w.tp = handoff.NewSources("p", 1)
	w.tp.Omit = sc.Omit
	for g := range w.gw {
		w.gw[g] = gateway{incarnation: 1, reading: &handoff.Reading{Omit: sc.Omit}}
	}
	// The head start: reserve and prefill of epoch 1 are on their way.
	w.send(msgOpen, e1)
	w.send(msgPrefill, e1)
	if sc.TwoGateways {
		w.send(msgOpen, e1b)
		w.send(msgPrefill, e1b)
		return w
	}
	if sc.Faults&StartUnknown != 0 {
		return w
	}
	w.start(g0)
	return w
}

// start is Start accepted: gateway g's plan is in the input, its worker runs.
func (w *world) start(g int) {
	plan := w.plans[[2]int{e1, e1b}[g]]
	c := handoff.NewCoordinator(plan, handoff.Policy{MaxEpochs: 2, Detach: w.Detach})
	c.Omit = w.Omit
	w.started, w.current, w.named = true, int8(g), reader{uint8(g), w.gw[g].incarnation, 1}
	w.winner = uint8(w.index(plan.Attempt))
	w.gw[g].told = bit(int(w.winner))
	w.conn = uint8(g) // that gateway's client
	w.wk[g] = worker{coord: c}
	w.run(g)
	w.hist = w.wk[g]
}

func (w *world) fork() *world {
	n := *w
	n.events, n.print = events{}, 0
	return &n
}

func (w *world) targets(d int) *handoff.Targets {
	w.td[d] = w.td[d].Clone()
	return w.td[d]
}

func (w *world) sources() *handoff.Sources {
	w.tp = w.tp.Clone()
	return w.tp
}

func (w *world) reading(g int) *handoff.Reading {
	w.gw[g].reading = w.gw[g].reading.Clone()
	return w.gw[g].reading
}

// targetOf and sourceOf give the record of an attempt, nil when unknown.
func (w *world) targetOf(a int) *handoff.Target { return w.tgt[a] }
func (w *world) sourceOf(a int) *handoff.Source { return w.src[a] }

// lookupTargets and lookupSources find the records again after a table was cloned or replaced.
func (w *world) lookupTargets() {
	for a := range many {
		w.tgt[a] = w.td[w.at[a]].Get(w.plans[a].Attempt)
	}
}

func (w *world) lookupSources() {
	for a := range many {
		w.src[a] = w.tp.Get(w.plans[a].Attempt)
	}
}

// stepTarget steps TD with an attempt's own plan.
func (w *world) stepTarget(e handoff.TargetEvent, a int, f func(*handoff.TargetInput)) handoff.TargetAnswer {
	in := handoff.TargetInput{Event: e, Attempt: w.plans[a].Attempt, D: w.plans[a].D}
	if r := w.targetOf(a); r != nil {
		in.Token, in.Grant, in.Manifest, in.Question = r.Token(), r.Grant, r.Manifest, r.Question
		in.Token.Attempt = w.plans[a].Attempt
	}
	if f != nil {
		f(&in)
	}
	ans := w.targets(w.at[a]).Step(0, in)
	w.lookupTargets()
	return ans
}

func (w *world) stepSource(e handoff.SourceEvent, a int, f func(*handoff.SourceInput)) handoff.SourceAnswer {
	in := handoff.SourceInput{Event: e, Attempt: w.plans[a].Attempt, P: w.plans[a].P}
	if r := w.sourceOf(a); r != nil {
		in.Grant, in.Manifest = r.Grant, r.Manifest
	}
	if f != nil {
		f(&in)
	}
	ans := w.sources().Step(0, in)
	w.lookupSources()
	return ans
}

// holding is how many attempts' memory stands at D0, D1 and P.
type holding [3]uint8

// roomAt and roomP say whether an engine can hold one more attempt, of any request.
func (w *world) roomAt(d int) bool { return w.Room == 0 || w.heldAt(d)+w.others[d] < uint8(w.Room) }
func (w *world) roomP() bool       { return w.Room == 0 || w.heldP()+w.others[2] < uint8(w.Room) }

// holds counts what stands in the tables, where anybody needs room.
func (w *world) holds() holding {
	if w.Room == 0 {
		return holding{}
	}
	return holding{w.heldAt(d0), w.heldAt(d1), w.heldP()}
}

func (w *world) heldAt(d int) (n uint8) {
	for _, r := range w.td[d].All() {
		if r.Generation != 0 && !r.Freed {
			n++
		}
	}
	return n
}

func (w *world) heldP() (n uint8) {
	for _, r := range w.tp.All() {
		if r.Grant != 0 && !r.Freed {
			n++
		}
	}
	return n
}

// grantorLives says whether TP is still the life that the plans name.
func (w *world) grantorLives() bool { return w.tp.Incarnation == 1 }
