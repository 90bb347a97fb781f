package explore

import "github.com/surehand/surehand/contracts/handoff"

// Mutant leaves rules out of a scenario; the search must then find what breaks.
// With only Control left out it must find nothing: so each rule is needed
// although all the others are there.
type Mutant struct {
	Scenario
	Breaks  string          // what must be found: an invariant's id, or "leak"
	Control handoff.Omitted // left out in both; usually nothing
	Like    string          // the counterexample of the protocol that it re-finds
	Brief   bool            // found within some thousand states
}

var omit = handoff.Omit

// Mutants has at least one entry for each rule that the model can bite on.
var Mutants = []Mutant{
	{Scenario{Name: "fence before supersede", Quick: true, Quicker: true, Omit: omit(handoff.RuleFence)}, "S2", 0, "M1", true},
	{Scenario{Name: "a later plan is history first", Quick: true, Quicker: true, Begin: closed, Faults: Takeover, Omit: omit(handoff.RulePlanRecorded)}, "S2", 0, "M2", false},
	{Scenario{Name: "nonce, two bodies", TwoGateways: true, TwoBodies: true, Omit: omit(handoff.RuleTargetNonce)}, "S1", 0, "M3", false},
	{Scenario{Name: "nonce, one body", Quick: true, Quicker: true, Begin: validated, TwoGateways: true, Omit: omit(handoff.RuleTargetNonce)}, "S2", 0, "M3b", false},
	{Scenario{Name: "tombstones, takeover", Quick: true, Quicker: true, Faults: Takeover, Omit: omit(handoff.RuleTombstone)}, "S2", 0, "M4", true},
	{Scenario{Name: "tombstones, cancel", Faults: Cancel, Omit: omit(handoff.RuleTombstone)}, "S2", 0, "M4", true},
	{Scenario{Name: "the present is answered", Faults: LeaseDecode | Takeover, Omit: omit(handoff.RulePresentAnswer)}, "S14", 0, "M5", true},
	{Scenario{Name: "only never validated is closed", Quick: true, Quicker: true, Omit: omit(handoff.RuleNeverValidated)}, "S2", 0, "M6a", false},
	{Scenario{Name: "another incarnation is unknown", Quick: true, Quicker: true, Begin: delivered, Faults: RestartHost | Takeover, Omit: omit(handoff.RuleStaleIncarnationMute)}, "S2", 0, "M6b", false},
	{Scenario{Name: "incarnations are refused", Quick: true, Quicker: true, Begin: delivered, Faults: RestartHost | Takeover, Omit: omit(handoff.RuleIncarnation)}, "S2", 0, "M6b", false},
	{Scenario{Name: "a restarted TD adopts", Quick: true, Quicker: true, Begin: delivered, Faults: RestartTD, Omit: omit(handoff.RuleAdopt)}, "leak", 0, "M7", false},
	{Scenario{Name: "announcing is final", Fine: true, Begin: []actKind{actOpen, actPrefill, actAnnounce, actPost}, Faults: Preempt, Omit: omit(handoff.RuleAnnounceFinal, handoff.RuleDigest)}, "S1", omit(handoff.RuleDigest), "M8", false},
	{Scenario{Name: "sealed digests", Fine: true, Begin: []actKind{actOpen, actPrefill, actAnnounce, actAnnounce, actSeal}, Faults: Corrupt, Omit: omit(handoff.RuleDigest)}, "S1", 0, "corruption", false},
	{Scenario{Name: "the question", Quicker: true, Omit: omit(handoff.RuleQuestion)}, "S2", 0, "rule 5(b) has no record", false},
	{Scenario{Name: "drained, local", Fine: true, Local: true, Omit: omit(handoff.RuleDrained)}, "S5", 0, "M10a", true},
	{Scenario{Name: "drained, served", Fine: true, Omit: omit(handoff.RuleDrained)}, "S5", 0, "M10", true},
	{Scenario{Name: "a reset run never plans", Quick: true, Quicker: true, Begin: replanned, Faults: Reset, Omit: omit(handoff.RuleReset)}, "S2", 0, "M11", false},
	{Scenario{Name: "an undo keeps a commit", Faults: Takeover, Omit: omit(handoff.RuleUndoKeepsCommit)}, "S6", 0, "M12", true},
	{Scenario{Name: "decode lease", Quick: true, Quicker: true, Begin: delivered, Faults: Kill, Omit: omit(handoff.RuleDecodeLease)}, "leak", 0, "M13", false},
	{Scenario{Name: "a cancel is looked for", Quick: true, Quicker: true, Faults: Cancel, Omit: omit(handoff.RuleCancelBeforePlan)}, "S2", 0, "section 3, cancel", false},
	{Scenario{Name: "epoch order", SameD: true, Quick: true, Quicker: true, Omit: omit(handoff.RuleEpochOrder)}, "S3", 0, "S3", true},
	{Scenario{Name: "reader: records before the write", Readers: true, Quick: true, Quicker: true, Begin: delivered, Omit: omit(handoff.RuleReaderRecords)}, "S2", 0, "M16", true},
	{Scenario{Name: "reader: records before the answer", Readers: true, Quick: true, Quicker: true, Begin: delivered, Omit: omit(handoff.RuleReaderAnswers)}, "S2", 0, "5(c)", true},
	{Scenario{Name: "reader: whom history names", Readers: true, Quick: true, Quicker: true, Begin: delivered, Faults: Takeover, Omit: omit(handoff.RuleReaderNamed, handoff.RuleReaderSame)}, "S2", omit(handoff.RuleReaderNamed), "5(c)", false},
	{Scenario{Name: "reader: incarnation", Readers: true, Quick: true, Quicker: true, Begin: taken, Faults: RestartGW | Takeover, Omit: omit(handoff.RuleReaderIncarnation)}, "S2", 0, "5(c)", false},
	{Scenario{Name: "reader: silence proves nothing", Readers: true, Quick: true, Quicker: true, Begin: taken, Faults: Kill | Takeover, Omit: omit(handoff.RuleReaderSilence)}, "S2", 0, "5(c)", false},
	{Scenario{Name: "reader: that nobody came proves nothing", Readers: true, Quick: true, Quicker: true, Begin: taken, Faults: Kill | Takeover, Omit: omit(handoff.RuleReaderAwaited)}, "S2", 0, "5(c)", false},
	{Scenario{Name: "reader: the same at the plan", Readers: true, Quick: true, Quicker: true, Begin: delivered, SlowAnswers: true, Faults: Reattach, Omit: omit(handoff.RuleReaderSame)}, "S2", 0, "5(c)", false},
	{Scenario{Name: "reader: told the newest plan", Readers: true, Quick: true, Quicker: true, Begin: delivered, Faults: Reattach, Omit: omit(handoff.RuleReaderNewest)}, "S2", 0, "5(c)", false},
	{Scenario{Name: "reader: the client leaves", Readers: true, Quick: true, Quicker: true, Begin: delivered, Faults: Reattach, Omit: omit(handoff.RuleClientLeaves)}, "S10", 0, "5(c)", true},
	{Scenario{Name: "reader: only position 0", Readers: true, Quick: true, Quicker: true, Begin: delivered, Faults: Reattach, Omit: omit(handoff.RuleReaderPosition)}, "S10", 0, "5(c)", true},
}
