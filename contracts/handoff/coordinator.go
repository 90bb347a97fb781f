package handoff

// Step names one activity of the workflow. The history shows these names.
type Step string

const (
	StepReserve      Step = "reserve"       // room on D: ledger, blocks, generation, τ
	StepPrefill      Step = "prefill"       // P computes, announces and seals
	StepTransfer     Step = "transfer"      // TD pulls, verifies, asks the question
	StepCommit       Step = "commit"        // TD makes the target visible, once
	StepUndoTransfer Step = "undo-transfer" // TD closes the attempt (undo of transfer; released: of commit)
	StepUndoPrefill  Step = "undo-prefill"  // TP closes the source, P stops and frees
	StepUndoReserve  Step = "undo-reserve"  // the ledger's promise ends
	StepAskReader    Step = "ask-reader"    // rule 5(c)
	StepPlace        Step = "place"         // choose the next plan; its completion is history
	StepDecode       Step = "decode"        // D's stream; not a step of the workflow, but what failures name
)

// Command asks the workflow to run one step under one plan. Hard turns an undo
// into a release, which also ends a committed attempt (rule 4).
type Command struct {
	Step Step
	Plan Plan
	Hard bool
}

// Verdict is what a closing step learned about its attempt.
type Verdict uint8

const (
	VerdictNone      Verdict = iota
	VerdictClosed            // TD: closed, never committed; TP: closed, never validated; reader: given up
	VerdictCommitted         // TD: committed; reader: delivered; the asker goes on with it
	VerdictOver              // TD: aborted after commit; TP: closed, but validated once
	VerdictUnknown           // no answer, or another incarnation: proves nothing
)

func (v Verdict) String() string {
	return [...]string{"none", "closed", "committed", "over", "unknown"}[v]
}

// Result is the end of one step. Code is CodeNone when it was done; Verdict
// belongs to undo steps and the reader's answer; Next to StepPlace.
type Result struct {
	Step    Step
	Attempt Attempt
	Code    Code
	Detail  string
	Verdict Verdict
	Reader  Reader // of StepAskReader: who answered
	Next    *Plan  // of StepPlace
}

// Phase is where a handoff stands; the UI and search attributes show it.
type Phase string

const (
	PhaseMoving     Phase = "moving" // reserve, prefill and transfer run side by side
	PhaseCommitting Phase = "committing"
	PhaseDecoding   Phase = "decoding"
	PhaseFencing    Phase = "fencing" // the attempt failed; prove it closed
	PhasePlacing    Phase = "placing"
	PhaseClosing    Phase = "closing" // the outcome is decided, undo steps run
	PhaseEnded      Phase = "ended"
)

// Outcome is how a handoff ended. Code is CodeNone for a whole stream.
type Outcome struct {
	Attempt   Attempt
	Committed bool
	Code      Code
	Detail    string
}

// Policy bounds what a coordinator may do.
type Policy struct {
	MaxEpochs Epoch // MaxEpochsBeforeFirstToken when zero
	Detach    bool  // record: handoff; the workflow ends at commit
}

// Coordinator is the workflow's side of the protocol: given results it says
// which steps to run next. Pure and deterministic; the workflow replays it.
type Coordinator struct {
	Policy Policy
	Omit   Omitted // only the explorer sets it

	plan      Plan
	reader    Reader // whom history names now
	phase     Phase
	pending   map[Step]bool
	done      map[Step]bool
	failure   *Result // why the attempt is lost
	target    Verdict
	source    Verdict
	asked     Verdict
	askedOf   Reader
	cancelled bool
	committed bool
	reset     bool
	outcome   *Outcome
	out       []Command
}

// NewCoordinator begins a handoff under the plan in the workflow's input.
func NewCoordinator(p Plan, policy Policy) *Coordinator {
	if policy.MaxEpochs == 0 {
		policy.MaxEpochs = MaxEpochsBeforeFirstToken
	}
	c := &Coordinator{Policy: policy, reader: p.Reader}
	c.begin(p)
	return c
}

// Plan is the plan of the present epoch.
func (c *Coordinator) Plan() Plan { return c.plan }

// Phase is where the handoff stands.
func (c *Coordinator) Phase() Phase { return c.phase }

// Outcome is the decided end, nil before. Undo steps may still run: Ended.
func (c *Coordinator) Outcome() *Outcome { return c.outcome }

// Ended says that the outcome is decided and nothing is left to undo.
func (c *Coordinator) Ended() bool { return c.phase == PhaseEnded }

// Commands drains the steps to run now, in order.
func (c *Coordinator) Commands() []Command {
	out := c.out
	c.out = nil
	return out
}

func (c *Coordinator) begin(p Plan) {
	c.plan, c.phase = p, PhaseMoving
	c.pending, c.done = map[Step]bool{}, map[Step]bool{}
	c.failure, c.target, c.source, c.asked = nil, VerdictNone, VerdictNone, VerdictNone
	c.issue(StepReserve, StepPrefill, StepTransfer)
}

func (c *Coordinator) issue(steps ...Step) {
	for _, s := range steps {
		c.pending[s] = true
		c.out = append(c.out, Command{Step: s, Plan: c.plan})
	}
}

// release issues the undo steps as releases, newest first (rule 27).
func (c *Coordinator) release(steps ...Step) {
	for _, s := range steps {
		c.pending[s] = true
		c.out = append(c.out, Command{Step: s, Plan: c.plan, Hard: true})
	}
}

// Step takes the result of one command. A result of an older attempt, or of a
// step that is not pending, changes nothing.
func (c *Coordinator) Step(r Result) {
	if r.Attempt != c.plan.Attempt || !c.pending[r.Step] {
		return
	}
	delete(c.pending, r.Step)
	if r.Code == CodeNone {
		c.done[r.Step] = true
	}
	switch r.Step {
	case StepReserve, StepPrefill, StepTransfer:
		c.moved(r)
	case StepCommit:
		c.commitAnswered(r)
	case StepUndoTransfer, StepUndoPrefill, StepUndoReserve:
		c.undone(r)
	case StepAskReader:
		c.asked, c.askedOf = r.Verdict, r.Reader
		c.judge()
	case StepPlace:
		c.placed(r)
	}
}

func (c *Coordinator) moved(r Result) {
	switch {
	case c.phase != PhaseMoving:
		c.settle()
	case r.Code != CodeNone:
		c.fail(r)
	case c.done[StepReserve] && c.done[StepPrefill] && c.done[StepTransfer]:
		c.phase = PhaseCommitting
		c.issue(StepCommit)
	}
}

func (c *Coordinator) commitAnswered(r Result) {
	if c.phase != PhaseCommitting {
		c.settle()
		return
	}
	if r.Code == CodeNone {
		c.decode()
		return
	}
	c.fail(r)
}

func (c *Coordinator) decode() {
	c.phase, c.committed = PhaseDecoding, true
	if c.Policy.Detach {
		c.end(Outcome{Attempt: c.plan.Attempt, Committed: true})
	}
}

// fail begins the fence: each place that could still let the attempt become
// visible is asked to close it, softly (rules 4 and 5).
func (c *Coordinator) fail(r Result) {
	c.failure = &r
	c.phase = PhaseFencing
	c.reset = r.Code == CodeReset
	if c.Omit.Has(RuleFence) {
		c.target = VerdictClosed
		c.source = VerdictClosed
		c.issue(StepUndoTransfer, StepUndoPrefill)
		c.judge()
		return
	}
	c.issue(StepUndoTransfer, StepUndoPrefill) // the promise ends once it is known that nothing is adopted
}

func (c *Coordinator) undone(r Result) {
	switch r.Step {
	case StepUndoTransfer:
		c.target = r.Verdict
	case StepUndoPrefill:
		c.source = r.Verdict
	}
	if c.phase == PhaseFencing {
		c.judge()
		return
	}
	c.settle()
}

// proof says whether the present attempt is proved closed (rule 5).
func (c *Coordinator) proof() bool {
	return c.target == VerdictClosed || c.source == VerdictClosed || c.asked == VerdictClosed
}

// judge decides what follows a failed attempt once its closers answered.
func (c *Coordinator) judge() {
	if c.phase != PhaseFencing || c.pending[StepAskReader] {
		return
	}
	switch {
	case c.target == VerdictCommitted, c.asked == VerdictCommitted:
		c.decode() // the asker adopts the commit
	case c.proof():
		c.next() // one proof is enough; the other closer's answer is awaited by nobody
	case c.pending[StepUndoTransfer], c.pending[StepUndoPrefill]:
	case c.asked == VerdictNone && !c.reset:
		c.issue(StepAskReader)
	default:
		c.end(Outcome{Attempt: c.plan.Attempt, Code: CodeOutcomeUnknown,
			Detail: "after " + c.failure.Code.String() + " in " + string(c.failure.Step) + ": neither TD, TP nor the reader can prove the attempt closed"})
	}
}

// next plans another epoch, or ends with the failure.
func (c *Coordinator) next() {
	f := c.failure
	give := f.Code.Advice() == GiveUp || f.Code.Advice() == CallOperator
	switch {
	case c.cancelled && !c.Omit.Has(RuleCancelBeforePlan):
		c.end(Outcome{Attempt: c.plan.Attempt, Code: CodeCancelled})
	case give || c.plan.Attempt.Epoch >= c.Policy.MaxEpochs:
		c.end(Outcome{Attempt: c.plan.Attempt, Code: f.Code, Detail: f.Detail})
	default:
		c.phase = PhasePlacing
		c.issue(StepPlace)
	}
}

func (c *Coordinator) placed(r Result) {
	if c.phase != PhasePlacing {
		c.settle()
		return
	}
	switch {
	case c.cancelled && !c.Omit.Has(RuleCancelBeforePlan):
		c.end(Outcome{Attempt: c.plan.Attempt, Code: CodeCancelled})
	case r.Code != CodeNone || r.Next == nil:
		c.end(Outcome{Attempt: c.plan.Attempt, Code: c.failure.Code, Detail: c.failure.Detail + "; no other placement: " + r.Detail})
	case c.onlyReader() && c.askedOf != c.reader && !c.Omit.Has(RuleReaderSame):
		c.end(Outcome{Attempt: c.plan.Attempt, Code: CodeOutcomeUnknown, Detail: "the reader changed after it gave the attempt up"})
	case r.Next.Attempt.Epoch != c.plan.Attempt.Epoch+1 || r.Next.Attempt.Handoff != c.plan.Attempt.Handoff:
		c.end(Outcome{Attempt: c.plan.Attempt, Code: CodeInternal, Detail: "placement gave a plan of another epoch"})
	default:
		old := c.plan
		c.out = append(c.out, Command{Step: StepUndoReserve, Plan: old})
		if c.target != VerdictClosed { // rule 5(c)6: a superseded attempt that may decode is waste; end it
			c.out = append(c.out, Command{Step: StepUndoTransfer, Plan: old, Hard: true})
		}
		c.begin(*r.Next)
	}
}

// onlyReader says that the proof rests on the reader's word alone.
func (c *Coordinator) onlyReader() bool {
	return c.target != VerdictClosed && c.source != VerdictClosed
}

// Cancel is the client's cancel. Everything planned is released; TD's order of
// Commit and Release decides, and the answer says which (rule 18).
func (c *Coordinator) Cancel() {
	if c.cancelled || c.outcome != nil {
		return
	}
	c.cancelled = true
	if c.phase == PhasePlacing && c.Omit.Has(RuleCancelBeforePlan) {
		return
	}
	c.closeWith(Outcome{Attempt: c.plan.Attempt, Committed: c.committed, Code: CodeCancelled})
	c.release(StepUndoTransfer, StepUndoPrefill, StepUndoReserve)
}

// StreamEnded is the reader's report that the stream is over: whole, or broken
// with a code. It is history (a signal) before it is acted on, so a release may follow.
func (c *Coordinator) StreamEnded(code Code, detail string) {
	if c.outcome != nil {
		return
	}
	o := Outcome{Attempt: c.plan.Attempt, Committed: c.committed, Code: code, Detail: detail}
	c.closeWith(o)
	if code == CodeNone {
		c.release(StepUndoReserve) // D ended the decode by itself, P was freed by the transfer's end
		return
	}
	c.release(StepUndoTransfer, StepUndoPrefill, StepUndoReserve)
}

// StreamLost is the reader's report that D's stream broke before the first
// token, and that the reader gave the attempt up: rule 5(c) proves it closed,
// whatever became of D, so another epoch may be planned.
func (c *Coordinator) StreamLost(by Reader, code Code, detail string) {
	if c.phase != PhaseDecoding || c.outcome != nil {
		return
	}
	c.committed = false
	c.failure = &Result{Step: StepDecode, Attempt: c.plan.Attempt, Code: code, Detail: detail}
	c.phase = PhaseFencing
	c.asked, c.askedOf = VerdictClosed, by
	c.issue(StepUndoTransfer, StepUndoPrefill)
	c.judge()
}

// NameReader records that history names another reader (a re-attach).
func (c *Coordinator) NameReader(r Reader) { c.reader = r }

// Reader is whom history names.
func (c *Coordinator) Reader() Reader { return c.reader }

func (c *Coordinator) closeWith(o Outcome) {
	c.outcome = &o
	c.phase = PhaseClosing
}

func (c *Coordinator) end(o Outcome) {
	c.closeWith(o)
	if !o.Committed {
		c.issue(StepUndoReserve)
	}
	c.settle()
}

// settle ends the handoff once nothing is pending.
func (c *Coordinator) settle() {
	if c.phase == PhaseClosing && len(c.pending) == 0 {
		c.phase = PhaseEnded
	}
}
