package reference

import (
	"github.com/surehand/surehand/activities/engine"
	enginev1 "github.com/surehand/surehand/contracts/gen/surehand/engine/v1"
	"github.com/surehand/surehand/contracts/handoff"
)

var roles = map[enginev1.Role]engine.Role{
	enginev1.Role_ROLE_PREFILL: engine.RolePrefill, enginev1.Role_ROLE_DECODE: engine.RoleDecode, enginev1.Role_ROLE_BOTH: engine.RoleBoth,
}

func sampling(s engine.Sampling) *enginev1.Sampling {
	return &enginev1.Sampling{Temperature: s.Temperature, TopP: s.TopP, Seed: s.Seed, MaxTokens: s.MaxTokens, Stop: s.Stop, Drawn: s.Drawn}
}

func fromDescription(m *enginev1.Description) (engine.Description, error) {
	d := engine.Description{
		Engine: handoff.EngineID(m.GetEngine()), Role: roles[m.GetRole()], Model: m.GetModel(), Revision: m.GetRevision(),
		Address: m.GetAddress(), Process: handoff.Incarnation(m.GetProcessIncarnation()),
		Node: handoff.NodeID(m.GetNode()), Incarnation: handoff.Incarnation(m.GetNodeIncarnation()),
		Control: m.GetControlAddress(), Peer: m.GetPeerAddress(),
		BlockTokens: m.GetBlockTokens(), Blocks: m.GetBlocks(), BlocksFree: m.GetBlocksFree(),
		Running: m.GetRunning(), Waiting: m.GetWaiting(), ContextTokens: m.GetMaxTokens(),
		TargetsHeld: m.GetTargetsHeld(), SourcesHeld: m.GetSourcesHeld(),
		PrefillTokensPerSecond: m.GetPrefillTokensPerSecond(), Tokenizes: m.GetTokenizes(),
	}
	if n := copy(d.Layout[:], m.GetLayout()); n != len(m.GetLayout()) || n != len(d.Layout) {
		return engine.Description{}, handoff.Errorf(handoff.CodeInternal, "layout fingerprint has %d bytes, want %d", len(m.GetLayout()), len(d.Layout))
	}
	return d, nil
}

func fromEvent(m *enginev1.DecodeEvent) engine.DecodeEvent {
	c := m.GetCounts()
	return engine.DecodeEvent{Position: m.GetPosition(), Text: m.GetText(), Tokens: m.GetTokens(), Finish: m.GetFinishReason(),
		Counts: engine.Counts{Direct: c.GetDirect(), Cached: c.GetCached(), Recomputed: c.GetRecomputed(), Completion: c.GetCompletion()}}
}
