package handoff

import "slices"

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
	StepAwaitReader  Step = "await-reader"  // until history names another reader, or nobody came in time; no activity, a wait
	StepPlace        Step = "place"         // choose the next plan; its completion is history
	StepDecode       Step = "decode"        // D's stream; not a step of the workflow, but what failures name
)

// The steps in the order of their indices in a stepSet.
var stepOrder = [...]Step{StepReserve, StepPrefill, StepTransfer, StepCommit,
	StepUndoTransfer, StepUndoPrefill, StepUndoReserve, StepAskReader, StepAwaitReader, StepPlace}

// index of a step of the workflow; -1 for any other name.
func (s Step) index() int { return slices.Index(stepOrder[:], s) }

// Command asks the workflow to run one step under one plan; each command gets
// exactly one Result. Hard turns an undo into a release, which also ends a
// committed attempt (rule 4).
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
	Unproven  bool // it ended without a word of TD, TP or its reader on whether it was committed
	Code      Code
	Detail    string
}

// Sticks says whether the key of a handoff that ended so is spent (S13): what was
// committed, and what may have been: nobody proved that no client has tokens. An unknown outcome is no refusal: somebody may
// still deliver it. A reset run does not know what the run before it came to: an
// epoch that its history forgot may have delivered.
func (o Outcome) Sticks() bool {
	switch o.Code {
	case CodeNone, CodeOutcomeUnknown, CodeReset:
		return true
	}
	return o.Committed || o.Unproven
}

// Policy bounds what a coordinator may do.
type Policy struct {
	MaxEpochs Epoch // MaxEpochsBeforeFirstToken when zero
	Detach    bool  // record: handoff; the workflow ends at commit
	Unasked   bool  // as begun by releases that gave up without asking the reader first
	AnyWord   bool  // as begun by releases that took an earlier reader's word where no other epoch follows
}
