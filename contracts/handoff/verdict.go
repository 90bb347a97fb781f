package handoff

// TargetVerdict reads TD's answer to Undo or Release: what it proves about the
// attempt (rule 5a). A refusal, another incarnation included, proves nothing.
func TargetVerdict(a TargetAnswer) Verdict {
	switch {
	case a.Code != CodeNone:
		return VerdictUnknown
	case a.State == TargetClosed:
		return VerdictClosed
	case a.State == TargetCommitted:
		return VerdictCommitted
	case a.State == TargetAborted:
		return VerdictOver
	}
	return VerdictUnknown
}

// SourceVerdict reads TP's answer to Undo or Release (rule 5b): closed is a
// proof only if no yes was ever said.
func SourceVerdict(a SourceAnswer) Verdict {
	switch {
	case a.Code != CodeNone || a.State != SourceClosed:
		return VerdictUnknown
	case a.Validated:
		return VerdictOver
	}
	return VerdictClosed
}

// ReaderVerdict reads the reader's answer to a give-up (rule 5c).
func ReaderVerdict(s ReaderState) Verdict {
	switch s {
	case ReaderGivenUp:
		return VerdictClosed
	case ReaderDelivering:
		return VerdictCommitted
	}
	return VerdictUnknown
}
