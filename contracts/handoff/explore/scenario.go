package explore

import "github.com/surehand/surehand/contracts/handoff"

// Scenario bounds one search: which faults may happen, and what is left out.
type Scenario struct {
	Name   string
	About  string
	Faults fault
	Omit   handoff.Omitted

	Fine        bool      // two pieces; epoch 1's prefill and pull piece by piece, else one step each
	Local       bool      // the holder reads by itself; nobody else can stop it
	SlowAnswers bool      // verdicts are read at one instant and used at a later one
	Quick       bool      // a pull, the question and its yes are one step
	Quicker     bool      // and epoch 2 opens, prefills and is pulled in one step
	Begin       []actKind // the search begins after these steps of epoch 1
	Readers     bool      // a gateway may pause between reading, testing and writing
	Detach      bool      // the workflow ends at the commit
	SameD       bool      // epoch 2 is placed on the same D
	TwoGateways bool      // both take a head start with their own nonce before Start
	TwoBodies   bool      // and their bodies differ
	Early       bool      // who comes again is told within a task that may be lost, as the code must not
	MaxStates   int       // 0: the caller's bound
	Room        int       // attempts that each engine's memory holds at once; 0: any
	Alone       bool      // of two requests only one is struck by faults that are its own
	Bounded     bool      // only Losses of the answers that a worker could have are lost; else any number
	Losses      uint8     // of two requests together
}

// fault is a set of things that may go wrong, each once.
type fault uint32

const (
	Takeover     fault = 1 << iota // another worker re-runs from history
	RestartTD                      // D0's daemon alone: its engine lives
	RestartHost                    // D0's daemon and engine
	RestartTP                      // P's daemon alone
	RestartGW                      // gateway 0 at the same address, with the worker in it
	Kill                           // gateway 0 and its worker, for ever
	LeaseP                         // the source's lease ends though somebody still wants it
	LeaseD                         // so does the reservation's
	LeaseDecode                    // so does the decode's
	Cancel                         // the client cancels
	Reattach                       // the client comes again through gateway 1, position 0
	StartUnknown                   // Start's answer is lost: the gateway undoes its head start
	Reset                          // an operator resets the run to its beginning
	Terminate                      // an operator terminates the run
	Corrupt                        // one piece lands other than it was read
	Preempt                        // P's engine drops or rewrites what it had announced
	Repost                         // a piece is read twice at once
	faultEnd
)

var faultNames = map[fault]string{Takeover: "takeover", RestartTD: "TD restart", RestartHost: "D host restart", RestartTP: "TP restart",
	RestartGW: "gateway restart", Kill: "kill", LeaseP: "lease P", LeaseD: "lease D", LeaseDecode: "decode lease", Cancel: "cancel",
	Reattach: "re-attach", StartUnknown: "start unknown", Reset: "reset", Terminate: "terminate", Corrupt: "corrupt", Preempt: "preempt", Repost: "repost"}

// The attempts of the model, by index.
const (
	e1   = 0 // epoch 1, gateway 0's nonce, D0
	e1b  = 1 // epoch 1, gateway 1's nonce, D0: a rival head start
	e2   = 2 // epoch 2, D1 (D0 with SameD)
	e2b  = 3 // epoch 2 as another run would plan it, D0
	many = 4
)

// P and D daemons and gateways by index.
const (
	d0 = 0
	d1 = 1
	g0 = 0
	g1 = 1

	nobody = 2 // the gateway of a client without a connection
)

var nodes = [2]handoff.NodeID{"d0", "d1"}
var gateways = [2]string{"g0", "g1"}
var attemptNames = [many]string{"e1", "e1'", "e2", "e2'"}

// set holds what a scenario computes once.
type set struct {
	Scenario
	request handoff.HandoffID
	plans   [many]handoff.Plan
	at      [many]int // index of each attempt's D
	body    [many]handoff.Origin
	shape   handoff.Shape
	begun   bool // the scenario's first steps are done: its bounds hold
}

func (sc Scenario) prepare(request handoff.HandoffID) *set {
	s := &set{Scenario: sc, request: request, at: [many]int{d0, d0, d1, d0}, body: [many]handoff.Origin{1, 1, 1, 1}}
	if sc.SameD {
		s.at[e2], s.at[e2b] = d0, d1
	}
	if sc.TwoBodies {
		s.body[e1b] = 2
	}
	pieces := uint32(1)
	if sc.Fine {
		pieces = 2
	}
	s.shape = handoff.Shape{Revision: "m", Layout: handoff.Digest{1}, Tokens: 16, Groups: []handoff.Group{{Name: "kv", Layers: 1, Blocks: pieces, BlockBytes: 64}}}
	for i, x := range []struct {
		epoch handoff.Epoch
		nonce handoff.Nonce
	}{{1, 1}, {1, 2}, {2, 3}, {2, 4}} {
		node := nodes[s.at[i]]
		s.plans[i] = handoff.Plan{Attempt: handoff.Attempt{Handoff: request, Epoch: x.epoch, Nonce: x.nonce},
			P: handoff.Seat{Engine: "ep", Node: "p", Incarnation: 1}, D: handoff.Seat{Engine: handoff.EngineID("e" + node), Node: node, Incarnation: 1},
			Reader: handoff.Reader{Process: gateways[g0], Incarnation: 1, Number: 1}, BodyDigest: handoff.Digest{byte(s.body[i])}}
	}
	s.plans[e1b].Reader.Process = gateways[g1]
	return s
}

// index finds an attempt of the model.
func (s *set) index(a handoff.Attempt) int {
	for i := range s.plans {
		if s.plans[i].Attempt == a {
			return i
		}
	}
	panic("an attempt that nobody planned: " + a.String())
}

// memory is the index of the memory that attempt a uses: its own, unless
// attempts of one epoch join (rule 6 left out).
func (s *set) memory(a int) int {
	if a == e1b && s.Omit.Has(handoff.RuleTargetNonce) {
		return e1
	}
	return a
}

// fine says whether a's prefill and pull are searched piece by piece.
func (s *set) fine(a int) bool { return s.Fine && a <= e1b }

func (s *set) pieces() int { return int(s.shape.Pieces()) }
