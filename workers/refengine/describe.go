package refengine

import (
	"github.com/surehand/surehand/activities/engine"
	enginev1 "github.com/surehand/surehand/contracts/gen/surehand/engine/v1"
	"github.com/surehand/surehand/workers/refengine/compute"
)

var roles = map[engine.Role]enginev1.Role{
	engine.RolePrefill: enginev1.Role_ROLE_PREFILL, engine.RoleDecode: enginev1.Role_ROLE_DECODE, engine.RoleBoth: enginev1.Role_ROLE_BOTH,
}

// Description is what the engine says of itself now; the registry publishes it.
func (e *Engine) Description() *enginev1.Description {
	load, books := e.device.Load(), e.arena.Count()
	sources, targets, _ := e.attempts.count()
	_, tokenizes := e.compute.(compute.Chats)
	_, resumes := e.compute.(compute.Resumes)
	return &enginev1.Description{
		Tokenizes: tokenizes, Resumes: resumes,
		Engine: string(e.c.ID), Role: roles[e.c.Role], Model: e.c.Model, Revision: e.form.revision, Layout: e.form.digest[:], Described: e.form.encoded,
		BlockTokens: uint32(e.form.layout.BlockTokens), Blocks: uint32(books.Blocks),
		BlocksFree: uint32(books.Free + books.Cached), // a cached block gives way to a request
		Running:    uint32(load.Running), Waiting: uint32(load.Waiting),
		Node: string(e.daemon.Node()), NodeIncarnation: uint64(e.daemon.Incarnation()),
		ControlAddress: e.c.Control, PeerAddress: e.daemon.PeerAddress(), PeerProtocol: e.daemon.PeerProtocol(),
		MaxTokens: uint32(e.compute.Context()), TargetsHeld: uint32(targets), SourcesHeld: uint32(sources),
		ProcessIncarnation: uint64(e.c.Process), Address: e.Address(), PrefillTokensPerSecond: load.PrefillTokensPerSecond,
	}
}

// Attached says whether a transferd stands beside the engine now. Without one it
// refuses new attempts; committed decodes go on.
func (e *Engine) Attached() bool { return e.attached.Load() }

// Changes has a word whenever the transferd beside the engine came, left or began
// another life, for one listener; what is so now, Description and Attached say.
func (e *Engine) Changes() <-chan struct{} { return e.changes }

// BrokenDecodes counts synthetic decodes that met a byte of somebody else.
func (e *Engine) BrokenDecodes() uint64 {
	if s, ok := e.compute.(*compute.Synthetic); ok {
		return s.Broken()
	}
	return 0
}
