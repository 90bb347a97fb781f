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
}

var omit = handoff.Omit

// Mutants has at least one entry for each rule that the model can bite on.
var Mutants = []Mutant{
	{Scenario{Name: "fence before supersede", Omit: omit(handoff.RuleFence)}, "S2", 0, "M1"},
	{Scenario{Name: "a later plan is history first", Quick: true, Begin: closed, Faults: Takeover, Omit: omit(handoff.RulePlanRecorded)}, "S2", 0, "M2"},
	{Scenario{Name: "nonce, two bodies", TwoGateways: true, TwoBodies: true, Omit: omit(handoff.RuleTargetNonce)}, "S1", 0, "M3"},
	{Scenario{Name: "nonce, one body", Quick: true, TwoGateways: true, Omit: omit(handoff.RuleTargetNonce)}, "S2", 0, "M3b"},
	{Scenario{Name: "tombstones, takeover", Quick: true, Faults: Takeover, Omit: omit(handoff.RuleTombstone)}, "S2", 0, "M4"},
	{Scenario{Name: "tombstones, cancel", Faults: Cancel, Omit: omit(handoff.RuleTombstone)}, "S2", 0, "M4"},
	{Scenario{Name: "the present is answered", Faults: LeaseDecode | Takeover, Omit: omit(handoff.RulePresentAnswer)}, "S14", 0, "M5"},
	{Scenario{Name: "only never validated is closed", Omit: omit(handoff.RuleNeverValidated)}, "S2", 0, "M6a"},
	{Scenario{Name: "another incarnation is unknown", Quick: true, Begin: delivered, Faults: RestartHost | Takeover, Omit: omit(handoff.RuleStaleIncarnationMute)}, "S2", 0, "M6b"},
	{Scenario{Name: "incarnations are refused", Quick: true, Begin: delivered, Faults: RestartHost | Takeover, Omit: omit(handoff.RuleIncarnation)}, "S2", 0, "M6b"},
	{Scenario{Name: "a restarted TD adopts", Quick: true, Begin: delivered, Faults: RestartTD, Omit: omit(handoff.RuleAdopt)}, "leak", 0, "M7"},
	{Scenario{Name: "announcing is final", Fine: true, Faults: Preempt, Omit: omit(handoff.RuleAnnounceFinal, handoff.RuleDigest)}, "S1", omit(handoff.RuleDigest), "M8"},
	{Scenario{Name: "sealed digests", Fine: true, Faults: Corrupt, Omit: omit(handoff.RuleDigest)}, "S1", 0, "corruption"},
	{Scenario{Name: "the question", Omit: omit(handoff.RuleQuestion)}, "S2", 0, "rule 5(b) has no record"},
	{Scenario{Name: "drained, local", Fine: true, Local: true, Omit: omit(handoff.RuleDrained)}, "S5", 0, "M10a"},
	{Scenario{Name: "drained, served", Fine: true, Omit: omit(handoff.RuleDrained)}, "S5", 0, "M10"},
	{Scenario{Name: "a reset run never plans", Quick: true, Begin: replanned, Faults: Reset, Omit: omit(handoff.RuleReset)}, "S2", 0, "M11"},
	{Scenario{Name: "an undo keeps a commit", Faults: Takeover, Omit: omit(handoff.RuleUndoKeepsCommit)}, "S6", 0, "M12"},
	{Scenario{Name: "decode lease", Quick: true, Begin: delivered, Faults: Kill, Omit: omit(handoff.RuleDecodeLease)}, "leak", 0, "M13"},
	{Scenario{Name: "a cancel is looked for", Faults: Cancel, Omit: omit(handoff.RuleCancelBeforePlan)}, "S2", 0, "section 3, cancel"},
	{Scenario{Name: "reader: records before the write", Readers: true, Quick: true, Begin: validated, Omit: omit(handoff.RuleReaderRecords)}, "S10", 0, "M16"},
	{Scenario{Name: "reader: records before the answer", Readers: true, Quick: true, Begin: validated, Omit: omit(handoff.RuleReaderAnswers)}, "S2", 0, "5(c)"},
	{Scenario{Name: "reader: whom history names", Readers: true, Quick: true, Begin: validated, Faults: Takeover, Omit: omit(handoff.RuleReaderNamed, handoff.RuleReaderSame)}, "S2", omit(handoff.RuleReaderNamed), "5(c)"},
	{Scenario{Name: "reader: incarnation", Readers: true, Quick: true, Begin: validated, Faults: RestartGW | Takeover, Omit: omit(handoff.RuleReaderIncarnation)}, "S2", 0, "5(c)"},
	{Scenario{Name: "reader: silence proves nothing", Readers: true, Quick: true, Begin: validated, Faults: Kill | Takeover, Omit: omit(handoff.RuleReaderSilence)}, "S2", 0, "5(c)"},
	{Scenario{Name: "reader: the same at the plan", Readers: true, Quick: true, Begin: validated, SlowAnswers: true, Faults: Reattach, Omit: omit(handoff.RuleReaderSame)}, "S2", 0, "5(c)"},
	{Scenario{Name: "reader: told the newest plan", Readers: true, Quick: true, Begin: validated, Faults: Reattach, Omit: omit(handoff.RuleReaderNewest)}, "S10", 0, "5(c)"},
	{Scenario{Name: "reader: the client leaves", Readers: true, Quick: true, Begin: validated, Faults: Reattach, Omit: omit(handoff.RuleClientLeaves)}, "S10", 0, "5(c)"},
	{Scenario{Name: "reader: only position 0", Readers: true, Quick: true, Begin: validated, Faults: Reattach, Omit: omit(handoff.RuleReaderPosition)}, "S10", 0, "5(c)"},
}
