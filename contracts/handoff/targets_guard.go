package handoff

// guard checks what the table cannot: who asks, under which incarnation, epoch
// and token. It changes nothing.
func (t *Targets) guard(r *Target, in TargetInput) (Code, string) {
	switch in.Event {
	case TargetOpen, TargetUndo, TargetRelease, TargetCommit:
		if !t.names(r, in.D) && !t.Omit.Has(RuleIncarnation) {
			return CodeStaleIncarnation, "this is another life of the daemon"
		}
	}
	switch in.Event {
	case TargetOpen:
		return t.guardOpen(r, in)
	case TargetUndo, TargetRelease:
		if r == nil && t.freed >= t.maxFreed {
			return CodeCapacity, "tombstone table is full" // without a tombstone *closed* would be no proof
		}
		return CodeNone, ""
	case TargetPost, TargetLand, TargetFail, TargetVerify, TargetAsk, TargetYes, TargetNo, TargetCommit:
		if r == nil {
			return CodeNotReady, "target not open"
		}
		tombstone := r.Generation == 0 && in.Event != TargetLand && in.Event != TargetFail
		if !tombstone && in.Token != r.Token() { // a tombstone has no token; the table says closed
			return CodeStaleToken, in.Token.String()
		}
	}
	if r == nil {
		return CodeNone, ""
	}
	if code, detail := t.guardEpoch(r, in); code != CodeNone {
		return code, detail
	}
	return guardRecord(r, in, t.Omit)
}

// names says whether seat d is this life of the daemon; an adopted target is
// still named by the life that committed it (rule 9).
func (t *Targets) names(r *Target, d Seat) bool {
	if r != nil && r.Adopted {
		return d.Node == r.Plan.D.Node && d.Incarnation == r.Plan.D.Incarnation
	}
	return d.Node == t.Node && d.Incarnation == t.Incarnation
}

func (t *Targets) guardEpoch(r *Target, in TargetInput) (Code, string) {
	switch in.Event {
	case TargetPost, TargetVerify, TargetAsk, TargetYes, TargetCommit:
		if in.Attempt.Epoch < t.Highest(in.Attempt.Handoff) && r.State < TargetCommitted && !t.Omit.Has(RuleEpochOrder) {
			return CodeStaleEpoch, "a higher epoch was seen"
		}
	}
	return CodeNone, ""
}

// guardRecord checks an event against the record itself.
func guardRecord(r *Target, in TargetInput, omit Omitted) (Code, string) {
	switch in.Event {
	case TargetPost:
		if r.Grant != 0 && in.Grant != 0 && in.Grant != r.Grant && !r.State.Final() {
			return CodeConflict, "this generation reads under another grant" // rule 11
		}
	case TargetLand, TargetFail:
		if r.Posted < count(in.Count) {
			return CodeInternal, "an operation ended that was never posted"
		}
		if in.Event == TargetLand && !r.Shape.within(in.Piece, count(in.Count)) && !r.State.Final() {
			return CodeInvalid, "piece out of range"
		}
	case TargetMisverify:
		if in.Piece >= r.Shape.Pieces() && !r.State.Final() {
			return CodeInvalid, "piece out of range"
		}
	case TargetVerify:
		if in.Manifest.IsZero() {
			return CodeInvalid, "verify without a manifest"
		}
		if r.State > TargetLanded && !r.State.Final() && in.Manifest != r.Manifest && !r.Adopted {
			return CodeIntegrity, "another manifest was verified"
		}
	case TargetAsk:
		if in.Question == 0 || in.Grant == 0 {
			return CodeInvalid, "a question needs a nonce and a grant"
		}
		if r.State == TargetVerified && r.Grant != 0 && in.Grant != r.Grant {
			return CodeConflict, "this generation reads under another grant" // rule 11
		}
	case TargetYes:
		fits := r.Question != 0 && in.Question == r.Question && in.Manifest == r.Manifest && in.Grant == r.Grant
		if r.State == TargetVerified && !fits && !omit.Has(RuleQuestion) {
			return CodeStaleToken, "the answer belongs to another question"
		}
	case TargetRenew:
		if r.State == TargetCommitted && in.Reader < r.Reader && in.Reader != 0 {
			return CodeStaleToken, "a newer reader renews this decode"
		}
	}
	return CodeNone, ""
}

func (t *Targets) guardOpen(r *Target, in TargetInput) (Code, string) {
	a := in.Attempt
	if in.Plan == nil || in.Shape == nil || in.Plan.Attempt != a {
		return CodeInvalid, "open without its plan and shape"
	}
	if r != nil {
		if r.State != TargetClosed && r.Plan != *in.Plan && !t.Omit.Has(RuleTargetNonce) {
			return CodeConflict, "this attempt has another plan" // rule 1
		}
		return CodeNone, ""
	}
	if t.Highest(a.Handoff) > a.Epoch && !t.Omit.Has(RuleEpochOrder) {
		return CodeStaleEpoch, "a higher epoch was seen"
	}
	if t.Live() >= t.maxLive || t.freed >= t.maxFreed {
		return CodeCapacity, "target table is full"
	}
	if err := in.Shape.Validate(); err != nil {
		return CodeOf(err), err.Error() // before anything is allocated for it
	}
	if t.otherNonce(a) && !t.Omit.Has(RuleTargetNonce) {
		return CodeConflict, "another nonce holds this epoch" // rule 6
	}
	return CodeNone, ""
}

// otherNonce says whether a's epoch is held by another nonce: live, or once
// committed. A closed one makes room: nobody can commit it any more.
func (t *Targets) otherNonce(a Attempt) bool {
	f := t.families[a.Handoff]
	if f == nil {
		return false
	}
	for _, r := range f.members {
		if k := r.Plan.Attempt; k.Epoch == a.Epoch && k.Nonce != a.Nonce && r.State != TargetClosed {
			return true
		}
	}
	return false
}
