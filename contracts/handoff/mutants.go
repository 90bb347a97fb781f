package handoff

// What the machines do when a rule is left out. Everything stands here, so that
// the machines themselves read as the protocol; with no rule omitted each of
// these functions gives back what it was given.

// targetCell changes one cell of the target's table.
func (o Omitted) targetCell(e TargetEvent, s TargetState, c targetCell) targetCell {
	switch {
	case o == 0:
	case o.Has(RuleUndoKeepsCommit) && e == TargetUndo && s == TargetCommitted:
		return move(TargetAborted)
	case o.Has(RuleQuestion) && e == TargetCommit && s == TargetVerified:
		return move(TargetCommitted)
	case o.Has(RuleDecodeLease) && e == TargetExpire && s == TargetCommitted:
		return move(TargetCommitted)
	case o.answersFirst(e, s):
		return move(TargetCommitted)
	}
	return c
}

// answersFirst: a repeated commit is answered as it was the first time.
func (o Omitted) answersFirst(e TargetEvent, s TargetState) bool {
	return o.Has(RulePresentAnswer) && e == TargetCommit && s == TargetAborted
}

// attempt, without nonces: operations of one epoch join.
func (o Omitted) attempt(a Attempt) Attempt {
	if o.Has(RuleTargetNonce) {
		a.Nonce = 1
	}
	return a
}

func (o Omitted) plan(p *Plan) *Plan {
	if p == nil || !o.Has(RuleTargetNonce) {
		return p
	}
	q := *p
	q.Attempt.Nonce = 1
	return &q
}

func (o Omitted) targetInput(in TargetInput) TargetInput {
	if o.Has(RuleTargetNonce) {
		in.Attempt, in.Token.Attempt, in.Plan = o.attempt(in.Attempt), o.attempt(in.Token.Attempt), o.plan(in.Plan)
	}
	return in
}

func (o Omitted) sourceInput(in SourceInput) SourceInput {
	if o.Has(RuleTargetNonce) {
		in.Attempt, in.Plan = o.attempt(in.Attempt), o.plan(in.Plan)
	}
	return in
}
