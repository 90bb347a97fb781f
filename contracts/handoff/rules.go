package handoff

// Rule numbers the rules of doc.go. Only the explorer and the museum omit one,
// to show that what it guards then breaks; every machine's zero value obeys all.
type Rule uint8

// The rules that a machine of this package enforces and that can be left out.
const (
	RuleTargetNonce          Rule = 6  // equal epoch, other nonce: conflict
	RuleTombstone            Rule = 7  // an undo that comes first leaves a mark
	RulePresentAnswer        Rule = 8  // a repeat answers the present state
	RuleAdopt                Rule = 9  // a restarted TD adopts from the flag page
	RuleDrained              Rule = 10 // free only at zero and nobody can start
	RuleAnnounceFinal        Rule = 11 // an announced piece is never written again
	RuleQuestion             Rule = 12 // the validated read
	RuleUndoKeepsCommit      Rule = 4  // an undo never takes back a commit
	RuleFence                Rule = 5  // fence before supersede
	RulePlanRecorded         Rule = 2  // a later plan is history before it acts
	RuleReset                Rule = 13 // a reset run never plans or commits
	RuleDecodeLease          Rule = 14 // a committed target has a lease
	RulePins                 Rule = 15 // pins are counted per (block, grant)
	RuleCapacitySet          Rule = 16 // the ledger is a set
	RuleIncarnation          Rule = 17 // stale incarnations are refused
	RuleCancelBeforePlan     Rule = 18 // look for a cancel before planning
	RuleDigest               Rule = 28 // block digests sealed by P
	RuleEpochOrder           Rule = 29 // S3: highest epoch seen
	RuleReaderRecords        Rule = 30 // 5(c)2: record before the write
	RuleReaderAnswers        Rule = 31 // 5(c)3: record before the answer
	RuleReaderNamed          Rule = 32 // 5(c)4: ask whom history names
	RuleReaderIncarnation    Rule = 33 // 5(c)1: another incarnation proves nothing
	RuleReaderSame           Rule = 34 // 5(c)5: history still names who answered
	RuleReaderSilence        Rule = 35 // 5(c)4: no answer proves nothing
	RuleStaleIncarnationMute Rule = 36 // 5: a changed incarnation is unknown, not closed
	RuleNeverValidated       Rule = 37 // 5(b): closed counts only if never validated
	RuleReaderNewest         Rule = 38 // 5(c)7: a new reader is told the newest plan
	RuleReaderPosition       Rule = 39 // 5(c)7: only position 0 re-attaches
	RuleClientLeaves         Rule = 40 // 5(c)7: the client leaves the older connection
	RuleReaderAwaited        Rule = 41 // 5(c)8: that nobody came proves nothing
)

// Omitted is the set of rules that a mutant leaves out.
type Omitted uint64

// Omit makes a set.
func Omit(rules ...Rule) Omitted {
	var o Omitted
	for _, r := range rules {
		o |= 1 << r
	}
	return o
}

// Has says whether rule r is left out.
func (o Omitted) Has(r Rule) bool { return o&(1<<r) != 0 }
