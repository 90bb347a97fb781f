package explore

import (
	"fmt"

	"github.com/surehand/surehand/contracts/handoff"
)

// act is one step of the world, small enough to keep and readable when printed.
type act struct {
	kind    actKind
	i, a, p uint8
	v       handoff.Verdict
}

type actKind uint8

const (
	actStart actKind = iota
	actLoserUndoes
	actMoved
	actMoveFails
	actMoveReset
	actCommitAnswered
	actCommitSilent
	actAsked
	actUsed
	actSilent
	actAwaited
	actPlaced
	actSeesCancel
	actSeesEnd
	actWatch
	actOpen
	actPrefill
	actAnnounce
	actSeal
	actPost
	actLand
	actLandCorrupt
	actPull
	actVerify
	actQuestion
	actYes
	actCommit
	actUndo
	actRelease
	actUndoP
	actStop
	actStopped
	actDestroy
	actFinish
	actExpireTarget
	actExpireDecode
	actExpireSource
	actRead
	actTest
	actWrite
	actReport
	actGivesUp
	actName
	actTellEarly
	actFault
	actPreempt
	actRewriteBegin
	actRewriteEnd
)

func (x act) String() string {
	e, w, g, d := attemptNames[x.a%many], fmt.Sprintf("W%d", x.i), fmt.Sprintf("gateway %d", x.i), fmt.Sprintf("D of %s", attemptNames[x.a%many])
	switch x.kind {
	case actStart:
		return fmt.Sprintf("Start of gateway %d is accepted", x.i)
	case actLoserUndoes:
		return fmt.Sprintf("%s undoes its head start of %s", g, e)
	case actMoved:
		return fmt.Sprintf("%s hears that %s is validated, sends Commit", w, e)
	case actMoveFails:
		return fmt.Sprintf("%s gets no answer about moving %s: it fails, undo is sent", w, e)
	case actMoveReset:
		return fmt.Sprintf("%s is a reset run: its steps of %s are refused", w, e)
	case actCommitAnswered:
		return fmt.Sprintf("%s delivers Commit of %s and gets the answer", w, e)
	case actCommitSilent:
		return fmt.Sprintf("%s gets no answer to Commit of %s: budget ends, undo is sent", w, e)
	case actAsked:
		return fmt.Sprintf("%s asks %s about %s: %s", w, x.who(), e, x.v)
	case actUsed:
		return fmt.Sprintf("%s uses the older answer about %s: %s", w, e, x.v)
	case actSilent:
		return fmt.Sprintf("%s gets no answer from %s about %s", w, x.who(), e)
	case actAwaited:
		return w + " has waited for another reader, or for long enough"
	case actPlaced:
		return fmt.Sprintf("%s: the plan %s is in history", w, e)
	case actSeesCancel:
		return w + " sees the cancel in history"
	case actSeesEnd:
		return w + " sees the reader's report in history"
	case actWatch:
		return fmt.Sprintf("%s finds that D holds %s no more: ends", w, e)
	case actOpen:
		return fmt.Sprintf("Open %s reaches D", e)
	case actPrefill:
		return fmt.Sprintf("Prefill %s reaches P", e)
	case actAnnounce:
		return fmt.Sprintf("P writes and announces piece %d of %s", x.p, e)
	case actSeal:
		return fmt.Sprintf("P seals %s", e)
	case actPost:
		return fmt.Sprintf("%s posts a read of piece %d", d, x.p)
	case actLand:
		return fmt.Sprintf("piece %d of %s lands", x.p, e)
	case actLandCorrupt:
		return fmt.Sprintf("piece %d of %s lands corrupted", x.p, e)
	case actPull:
		return fmt.Sprintf("%s pulls and verifies everything", d)
	case actVerify:
		return fmt.Sprintf("%s verifies", d)
	case actQuestion:
		return fmt.Sprintf("%s asks the question; TP records and answers", d)
	case actYes:
		return fmt.Sprintf("TP's yes about %s reaches D", e)
	case actCommit:
		return fmt.Sprintf("Commit %s reaches D (answer lost)", e)
	case actUndo:
		return fmt.Sprintf("Undo %s reaches D (answer lost)", e)
	case actRelease:
		return fmt.Sprintf("Release %s reaches D (answer lost)", e)
	case actUndoP:
		return fmt.Sprintf("Undo %s reaches P (answer lost)", e)
	case actStop:
		return fmt.Sprintf("%s says that it stopped reading", d)
	case actStopped:
		return fmt.Sprintf("the holder's word about %s reaches P", e)
	case actDestroy:
		return fmt.Sprintf("P destroys the connection of %s", e)
	case actFinish:
		return fmt.Sprintf("the decode of %s ends", e)
	case actExpireTarget:
		return fmt.Sprintf("the reservation of %s ends", e)
	case actExpireDecode:
		return fmt.Sprintf("the decode lease of %s ends", e)
	case actExpireSource:
		return fmt.Sprintf("the grant's lease of %s ends", e)
	case actRead:
		return fmt.Sprintf("%s reads a token of %s", g, e)
	case actTest:
		return fmt.Sprintf("%s tests and records %s", g, e)
	case actWrite:
		return fmt.Sprintf("%s writes the token of %s to the client", g, e)
	case actReport:
		return fmt.Sprintf("%s reports the end of %s (%s)", g, e, [...]string{"-", "whole", "broken", "lost before its first token"}[x.p])
	case actGivesUp:
		return fmt.Sprintf("a give-up of %s reaches %s (answer lost)", e, g)
	case actName:
		return w + " takes from history that gateway 1 is the reader, and has it told"
	case actTellEarly:
		return w + " has gateway 1 told of " + e + ", within a task that is lost"
	case actFault:
		return "FAULT " + faultNames[1<<x.p]
	case actPreempt:
		return fmt.Sprintf("P's engine preempts %s", e)
	case actRewriteBegin:
		return fmt.Sprintf("P's engine rewrites piece 0 of %s, half of it so far", e)
	case actRewriteEnd:
		return fmt.Sprintf("P's engine ends the rewrite of piece 0 of %s and announces it again", e)
	}
	return "?"
}

func (x act) who() string {
	switch stepKind(x.p) {
	case kindUndoTransfer:
		return "TD"
	case kindUndoPrefill:
		return "TP"
	}
	return "the reader"
}
