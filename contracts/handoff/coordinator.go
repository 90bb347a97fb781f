package handoff

// Coordinator is the workflow's side of the protocol: given results it says
// which steps to run next. Pure and deterministic; the workflow replays it.
//
//	Moving ──all done──▶ Committing ──done──▶ Decoding ──StreamEnded──▶ Closing ─▶ Ended
//	   │ a step failed        │ failed            │ StreamLost            ▲
//	   ▼                      ▼                   ▼                       │ no other epoch,
//	Fencing ◀──────────────────────────────────────                       │ or no proof and no other reader;
//	   │ proved closed      ▲ committed: Decoding                         │ Cancel in any
//	   ▼                    │ the reader changed: ask again               │ phase
//	Placing ──another plan──▶ Moving (next epoch) ────────────────────────
type Coordinator struct {
	Policy Policy
	Omit   Omitted // only the explorer sets it

	plan      Plan
	reader    Reader // whom history names now
	phase     Phase
	pending   [len(stepOrder)]uint8 // results awaited of the present attempt
	done      [len(stepOrder)]bool
	older     int     // results awaited of older attempts
	failure   *Result // why the attempt is lost
	target    Verdict
	source    Verdict
	asked     Verdict
	asking    Reader // whom the last question went to
	askedOf   Reader // who answered
	awaited   bool   // whom the last question went to stayed silent, and another reader was waited for
	delivered bool   // an earlier epoch's tokens are with the client: whatever comes, the key is spent
	resumed   Epoch  // the last epoch that broke after its first token
	cancelled bool
	committed bool
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

// Ended says that the outcome is decided and every command has its result,
// those of older attempts included.
func (c *Coordinator) Ended() bool { return c.phase == PhaseEnded }

// Commands drains the steps to run now, in order.
func (c *Coordinator) Commands() []Command {
	out := c.out
	c.out = nil
	return out
}

// Reader is whom history names.
func (c *Coordinator) Reader() Reader { return c.reader }

// NamesAnother says that history names another reader than the last one that was
// asked to give the attempt up: what a StepAwaitReader waits for.
func (c *Coordinator) NamesAnother() bool { return c.asking != c.reader }

// NameReader records that history names another reader (a re-attach). Numbers
// grow; an older one changes nothing.
func (c *Coordinator) NameReader(r Reader) {
	if r.Number > c.reader.Number {
		c.reader = r
	}
}

func (c *Coordinator) begin(p Plan) {
	for _, n := range c.pending {
		c.older += int(n)
	}
	c.plan, c.phase = p, PhaseMoving
	c.pending, c.done = [len(stepOrder)]uint8{}, [len(stepOrder)]bool{}
	c.failure, c.committed, c.awaited = nil, false, false
	c.target, c.source, c.asked, c.asking, c.askedOf = VerdictNone, VerdictNone, VerdictNone, Reader{}, Reader{}
	c.issue(StepReserve, StepPrefill, StepTransfer)
}

func (c *Coordinator) issue(steps ...Step) { c.command(false, steps) }

// release issues the undo steps as releases, newest first (rule 27).
func (c *Coordinator) release(steps ...Step) { c.command(true, steps) }

func (c *Coordinator) command(hard bool, steps []Step) {
	for _, s := range steps {
		c.pending[s.index()]++
		c.out = append(c.out, Command{Step: s, Plan: c.plan, Hard: hard})
	}
}

func (c *Coordinator) waits(steps ...Step) bool {
	for _, s := range steps {
		if c.pending[s.index()] > 0 {
			return true
		}
	}
	return false
}

// Step takes the result of one command. A result of an older attempt, or of a
// step that is not pending, decides nothing.
func (c *Coordinator) Step(r Result) {
	i := r.Step.index()
	switch {
	case i < 0:
		return
	case r.Attempt != c.plan.Attempt:
		if c.older > 0 && r.Attempt.Handoff == c.plan.Attempt.Handoff && r.Attempt.Epoch < c.plan.Attempt.Epoch {
			c.older--
			c.settle()
		}
		return
	case c.pending[i] == 0:
		return
	}
	c.pending[i]--
	c.done[i] = c.done[i] || r.Code == CodeNone
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
	case StepAwaitReader:
		c.judge()
	case StepPlace:
		c.placed(r)
	}
	c.settle()
}

func (c *Coordinator) moved(r Result) {
	switch {
	case c.phase != PhaseMoving:
	case r.Code != CodeNone:
		c.fail(r)
	case c.done[StepReserve.index()] && c.done[StepPrefill.index()] && c.done[StepTransfer.index()]:
		c.phase = PhaseCommitting
		c.issue(StepCommit)
	}
}

func (c *Coordinator) commitAnswered(r Result) {
	switch {
	case c.phase != PhaseCommitting:
		if r.Code == CodeNone {
			c.sawCommit()
		}
	case r.Code == CodeNone:
		c.decode()
	default:
		c.fail(r)
	}
}

func (c *Coordinator) decode() {
	c.phase, c.committed = PhaseDecoding, true
	if c.Policy.Detach {
		c.end(Outcome{Attempt: c.plan.Attempt, Committed: true})
	}
}

// sawCommit corrects a decided outcome: TD's order of Commit and Release
// decides, and the answer says which (rule 18).
func (c *Coordinator) sawCommit() {
	if c.outcome != nil && !c.outcome.Committed {
		o := *c.outcome
		o.Committed = true
		c.outcome = &o
	}
}

func (c *Coordinator) closeWith(o Outcome) {
	o.Committed = o.Committed || c.delivered
	c.outcome = &o
	c.phase = PhaseClosing
}

func (c *Coordinator) end(o Outcome) {
	if c.delivered && o.Code != CodeNone {
		c.endResumed(o)
		return
	}
	c.closeWith(o)
	if o.Committed {
		return
	}
	if c.asked == VerdictClosed && c.target != VerdictClosed {
		c.release(StepUndoTransfer) // given up by its reader, it may decode still: waste, as in supersede
	}
	c.issue(StepUndoReserve)
}

// settle ends the handoff once no result is awaited.
func (c *Coordinator) settle() {
	if c.phase == PhaseClosing && c.older == 0 && c.pending == [len(stepOrder)]uint8{} {
		c.phase = PhaseEnded
		if c.unproven() {
			o := *c.outcome
			o.Unproven = true
			c.outcome = &o
		}
	}
}

// unproven says that nobody proved the attempt closed that ended uncommitted: a
// cancel, or a reader of nothing, ends it whatever its closers answer, and a commit
// whose answer was lost may have let an earlier reader deliver (S13, S14).
func (c *Coordinator) unproven() bool {
	isProved := c.target == VerdictClosed || c.source == VerdictClosed || c.asked == VerdictClosed && c.askedOf == c.reader
	return !c.outcome.Committed && !isProved
}
