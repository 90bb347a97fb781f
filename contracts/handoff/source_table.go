package handoff

type sourceCell = cell[SourceState]

// sourceTable is the whole protocol of a source. Rows are events, columns states.
var sourceTable = buildSourceTable()

func buildSourceTable() (t [sourceEvents][sourceStates]sourceCell) {
	row := func(e SourceEvent, unknown, opened, sealed, closed sourceCell) {
		t[e] = [sourceStates]sourceCell{unknown, opened, sealed, closed}
	}
	no := refuse[SourceState]
	to := move[SourceState]
	row(SourceOpen, to(SourceOpened), to(SourceOpened), to(SourceSealed), no(CodeClosed))
	row(SourceAnnounce, no(CodeNotReady), to(SourceOpened), to(SourceSealed), no(CodeClosed)) // sealed: only a repeat passes the guard
	row(SourceSeal, no(CodeNotReady), to(SourceSealed), to(SourceSealed), no(CodeClosed))
	row(SourceRead, no(CodeNotReady), to(SourceOpened), to(SourceSealed), no(CodeClosed))
	row(SourceReadDone, no(CodeInternal), to(SourceOpened), to(SourceSealed), to(SourceClosed))
	row(SourceQuestion, no(CodeNotReady), no(CodeNotReady), to(SourceSealed), no(CodeClosed))
	row(SourceFinish, no(CodeNotReady), to(SourceClosed), to(SourceClosed), to(SourceClosed))
	row(SourceUndo, to(SourceClosed), to(SourceClosed), to(SourceClosed), to(SourceClosed))    // rule 7
	row(SourceRelease, to(SourceClosed), to(SourceClosed), to(SourceClosed), to(SourceClosed)) // rule 7
	row(SourceRenew, no(CodeNotReady), to(SourceOpened), to(SourceSealed), no(CodeClosed))
	row(SourceExpire, to(SourceUnknown), to(SourceClosed), to(SourceClosed), to(SourceClosed))
	row(SourcePreempt, no(CodeNotReady), to(SourceClosed), to(SourceClosed), to(SourceClosed))
	row(SourceDestroy, to(SourceUnknown), to(SourceOpened), to(SourceSealed), to(SourceClosed))
	return t
}
