package handoff

// guard checks what the table cannot: who asks, under which incarnation and
// grant, and whether the pieces are there. It changes nothing.
func (t *Sources) guard(r *Source, in SourceInput) (Code, string) {
	switch in.Event {
	case SourceOpen, SourceUndo, SourceRelease, SourceQuestion:
		if (in.P.Node != t.Node || in.P.Incarnation != t.Incarnation) && !t.Omit.Has(RuleIncarnation) {
			return CodeStaleIncarnation, "this is another life of the daemon"
		}
	}
	if in.Event == SourceOpen {
		return t.guardOpen(r, in)
	}
	if r == nil {
		if (in.Event == SourceUndo || in.Event == SourceRelease) && t.freed >= t.maxFreed {
			return CodeCapacity, "tombstone table is full" // without a tombstone *closed* would be no proof
		}
		return CodeNone, ""
	}
	switch in.Event {
	case SourceRead, SourceReadDone, SourceQuestion, SourceFinish, SourceRenew, SourceDestroy:
		if in.Grant != r.Grant {
			return CodeStaleToken, "another grant"
		}
	}
	if r.State == SourceClosed && in.Event != SourceReadDone {
		return CodeNone, "" // the table says closed
	}
	return guardSource(r, in, t.Omit)
}

// guardSource checks an event against the record itself.
func guardSource(r *Source, in SourceInput, omit Omitted) (Code, string) {
	switch in.Event {
	case SourceAnnounce:
		if in.Piece >= r.Shape.Pieces() {
			return CodeInvalid, "piece out of range"
		}
		if r.HasAnnounced(in.Piece) && r.Digests[in.Piece] != in.Digest && !omit.Has(RuleAnnounceFinal) {
			return CodeConflict, "an announced piece is final" // rule 11: the engine must close and open a new grant
		}
	case SourceRead:
		if !r.Shape.within(in.Piece, count(in.Count)) {
			return CodeNotReady, "piece not announced" // there is none
		}
		for p := in.Piece; p < in.Piece+uint32(count(in.Count)); p++ {
			if !r.HasAnnounced(p) {
				return CodeNotReady, "piece not announced"
			}
		}
	case SourceSeal:
		if r.State == SourceOpened && r.Left > 0 {
			return CodeNotReady, "pieces missing"
		}
	case SourceReadDone:
		if r.Posted < count(in.Count) {
			return CodeInternal, "a read ended that never began"
		}
	case SourceQuestion:
		if r.State == SourceSealed && in.Manifest != r.Manifest {
			return CodeIntegrity, "another manifest"
		}
	}
	return CodeNone, ""
}

func (t *Sources) guardOpen(r *Source, in SourceInput) (Code, string) {
	if in.Plan == nil || in.Shape == nil || in.Plan.Attempt != in.Attempt {
		return CodeInvalid, "open without its plan and shape"
	}
	if r != nil {
		if r.State != SourceClosed && r.Plan != *in.Plan && !t.Omit.Has(RuleTargetNonce) {
			return CodeConflict, "this attempt has another plan" // rules 1 and 6: the body digest is in the plan
		}
		return CodeNone, ""
	}
	if t.Live() >= t.maxLive || t.freed >= t.maxFreed {
		return CodeCapacity, "source table is full"
	}
	if err := in.Shape.Validate(); err != nil {
		return CodeOf(err), err.Error() // before anything is allocated for it
	}
	return CodeNone, ""
}
