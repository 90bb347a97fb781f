package planted

// Mover are those of the byte mover, transferd/README.md's (R-…), in its order.
var Mover = []Bug{
	{Row: "R-01", About: "what landed is not compared with what P sealed", Edits: []Edit{
		{"transferd/pull/sink.go", "l.digests != nil && e.Check != l.digests[e.Piece]", "false"},
		{"transferd/pull/ask.go", "if l.checks[i] == d {", "if l.checks[i] == d || true {"},
	}},
	{Row: "R-02", About: "a lease that is due is taken note of, and nothing more", Edits: []Edit{
		{"contracts/handoff/sources.go", "case t.Step(now, SourceInput{Event: SourceExpire, Attempt: e.attempt}).Changed:", "case false:"},
	}},
	{Row: "R-03", About: "a target is called drained while a write is posted, and its connection lives on", Edits: []Edit{
		{"contracts/handoff/target.go", "return t.State.Final() && t.Posted == 0 }", "return t.State.Final() }"},
		{"transferd/pull/loop.go", "l.lane.Interrupt()", "_ = l.lane"},
	}},
	{Row: "R-04", About: "the caller is answered at the deadline while the read goes on", Edits: []Edit{
		{"transferd/pull/loop.go", "if err := lane.Step(l.run.spec.ProgressDeadline); err != nil {", "if err := impatient(lane, l.run.spec.ProgressDeadline); err != nil {"},
		{"transferd/pull/loop.go", "\tlane.Close()\n\tl.landing.Destroyed()", "\tl.landing.Destroyed()"},
		{"transferd/pull/loop.go", "l.lane.Interrupt()", "_ = l.lane"},
	}, More: `func impatient(lane transport.Lane, deadline time.Duration) error {
	done := make(chan error, 1)
	go func() { done <- lane.Step(time.Minute) }()
	select {
	case err := <-done:
		return err
	case <-time.After(deadline):
		return handoff.Errorf(handoff.CodeProgress, "not done in time")
	}
}`},
	{Row: "R-05", About: "nobody looks whether a transfer goes forward", Edits: []Edit{
		{"transferd/pull/loop.go", "lane.Step(l.run.spec.ProgressDeadline)", "lane.Step(time.Hour)"},
		{"transferd/pull/loop.go", "left := max(l.run.spec.ProgressDeadline-time.Since(l.progress), backoffMax)", "left := time.Hour"},
	}},
	{Row: "R-06", About: "a range that may not be read is served", Edits: []Edit{
		{"contracts/handoff/sources_guard.go", "if !r.HasAnnounced(p) {", "if false {"},
	}},
	{Row: "R-08", About: "a life of P that is over is not told from the present one", Edits: []Edit{
		{"contracts/capability/capability.go", "if p.right.Source == at.Source && p.right.Incarnation != at.Incarnation {", "if false {"},
		{"transferd/transport/tcp/server.go", "hello.To != core.Node() || hello.ToIncarnation != core.Incarnation()", "hello.To != core.Node()"},
		{"transferd/transport/tcp/lane.go", "ok.Node != t.Node || ok.Incarnation != t.Instance", "ok.Node != t.Node"},
	}},
	{Row: "R-09", About: "P remembers the life of D that it met first", Edits: []Edit{
		{"transferd/fence/reading.go", "\tcase r.Plan.D.Incarnation != h.Incarnation:\n\t\treturn nil, nil, c.refused", "\tcase r.Plan.D.Incarnation != h.Incarnation || isPoisoned(h):\n\t\treturn nil, nil, c.refused"},
	}, More: `var metFirst = map[handoff.NodeID]handoff.Incarnation{}

func isPoisoned(h Holder) bool {
	if first, known := metFirst[h.Node]; known {
		return first != h.Incarnation
	}
	metFirst[h.Node] = h.Incarnation
	return false
}`},
	{Row: "R-10", About: "a dead engine's memory is not given back", Edits: []Edit{
		{"transferd/fence/engine.go", "if err := closeMemory(); err != nil {", "if closeMemory == nil {"},
	}},
	{Row: "R-11", About: "nobody asks who answers", Edits: []Edit{
		{"transferd/transport/tcp/server.go", "hello.To != core.Node() || hello.ToIncarnation != core.Incarnation()", "false"},
	}},
	{Row: "R-12", About: "what D asked for and P sends no more keeps D's blocks", Edits: []Edit{
		{"transferd/pull/loop.go", "\tlane.Close()\n\tl.landing.Destroyed()", "\tlane.Close()"},
	}},
	{Row: "R-13", About: "a release of what nobody knows is an error", Edits: []Edit{
		{"transferd/fence/control.go", "if !s.Target && !s.Source {", "if !s.Target && c.sources.Get(p.Attempt) == nil {"},
	}},
	{Row: "R-15", About: "a heartbeat comes and renews nothing", Edits: []Edit{
		{"contracts/handoff/sources.go", "r.End = max(r.End, now+clampLease(in.Lease, t.Lease))", "_ = in.Lease"},
	}},
	{Row: "R-16", About: "an end that is said twice is acted upon twice", Edits: []Edit{
		{"transferd/fence/target.go", "drainedNow := r.Drained() && !isClosed(t.drained)", "drainedNow := r.Drained()"},
		{"transferd/fence/trace.go", "\tif ans.Changed {\n\t\tc.settleTarget(in.Attempt)", "\t{\n\t\tc.settleTarget(in.Attempt)"},
	}},
	{Row: "R-18", About: "state items lie in one slot, which the next handoff takes over", Edits: []Edit{
		{"transferd/fence/reading.go", "return r.source.engine.Segment.View(r.source.extents[piece])", "return r.source.engine.Segment.View(shared(r, piece))"},
		{"transferd/fence/source.go", "\t\tc.lend(l)\n", "\t\tc.lend(l)\n\t\titemSlot = extents[len(extents)-1]\n"},
	}, More: `var itemSlot segment.Extent

func shared(r *Reading, piece uint32) segment.Extent {
	if int(piece) == len(r.source.extents)-1 {
		return itemSlot
	}
	return r.source.extents[piece]
}`},
	{Row: "R-19", About: "a source that failed keeps it to itself", Edits: []Edit{
		{"transferd/fence/source.go", "if closed && l.reading != nil {", "if false {"},
	}},
	{Row: "R-21", About: "ranks of replicated heads are counted the other way round", Edits: []Edit{
		{"contracts/layout/reshard.go", "return rank / (ranks / heads)", "return rank % heads"},
	}},
	{Row: "R-22", About: "D's place in a block is counted in P's blocks", Edits: []Edit{
		{"contracts/layout/walk.go", "first/b.d.BlockTokens, first%b.d.BlockTokens", "first/b.d.BlockTokens, first%b.p.BlockTokens"},
	}},
	{Row: "R-23", About: "state that one side lacks is left out", Edits: []Edit{
		{"contracts/handoff/manifest.go", "case len(s.Items) != len(t.Items):", "case false:"},
		{"contracts/handoff/manifest.go", "for i := range s.Items {\n\t\tif s.Items[i] != t.Items[i] {", "for i := range min(len(s.Items), len(t.Items)) {\n\t\tif s.Items[i] != t.Items[i] {"},
	}},
	{Row: "R-24", About: "what landed may be committed", Edits: []Edit{
		{"contracts/handoff/target_table.go", "row(TargetCommit, only(TargetValidated, TargetCommitted))", "row(TargetCommit, only(TargetLanded, TargetCommitted))"},
	}},
	{Row: "R-25", About: "a piece beyond the region is taken, and cut", Edits: []Edit{
		{"transferd/segment/segment.go", "if at > s.Bytes() || uint64(length) > s.Bytes()-at {", "if at > s.Bytes() {"},
	}},
	{Row: "R-27", About: "what is required is a wish", Edits: []Edit{
		{"transferd/pull/puller.go", "if s.Require != \"\" && o.Name() != s.Require {", "if false {"},
	}},
	{Row: "R-29", About: "a connection that breaks ends the process", Edits: []Edit{
		{"transferd/transport/tcp/frames.go", "return handoff.Errorf(handoff.CodeUnavailable, \"connection lost: %s\", err)", "panic(err)"},
	}},
	{Row: "R-30", About: "a peer that took the connection is waited for", Edits: []Edit{
		{"transferd/pull/loop.go", "left := max(l.run.spec.ProgressDeadline-time.Since(l.progress), backoffMax)", "left := time.Hour"},
	}},
	{Row: "R-32", About: "daemons may share a port", Edits: []Edit{
		{"transferd/transport/tcp/server.go", "net.Listen(\"tcp\", address)", "(&net.ListenConfig{Control: reusePort}).Listen(context.Background(), \"tcp\", address)"},
		{"transferd/transport/tcp/server.go", "\t\"sync\"\n", "\t\"sync\"\n\t\"syscall\"\n"},
	}, More: `func reusePort(_, _ string, c syscall.RawConn) error {
	const soReusePort = 15
	return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, soReusePort, 1) })
}`},
	{Row: "R-34", About: "a copy to the device is not waited for", Edits: []Edit{
		{"transferd/internal/native/cuda.go", "if err := m.ctx.cuda.do(\"cuStreamSynchronize\", m.stream); err != nil || toDevice {", "if toDevice {\n\t\treturn nil\n\t}\n\tif err := m.ctx.cuda.do(\"cuStreamSynchronize\", m.stream); err != nil {"},
	}},
	{Row: "R-36", About: "a grant ends with the orchestrator that asked", Edits: []Edit{
		{"transferd/control/service.go", "case <-stream.Context().Done(): // the pull goes on; a repeat joins it\n", "case <-stream.Context().Done():\n\t\t\t_, _ = s.Core.Undo(plan, fence.Sides{Target: true})\n"},
		{"transferd/control/service.go", "BytesLanded: p.Bytes, Lane: p.Lane}); err != nil {\n", "BytesLanded: p.Bytes, Lane: p.Lane}); err != nil {\n\t\t\t\t_, _ = s.Core.Undo(plan, fence.Sides{Target: true})\n"},
	}},
	{Row: "R-37", About: "an error that would repeat is met by another connection", Edits: []Edit{
		{"transferd/pull/loop.go", "if handoff.CodeOf(err).Advice() != handoff.RetrySame && !another {", "if false && !another {"},
	}},
	{Row: "R-38", About: "bytes count as committed once they came", Edits: []Edit{
		{"transferd/fence/landing.go", "l.core.totals.pulledBytes += bytes\n", "l.core.totals.pulledBytes += bytes\n\tl.core.totals.committedBytes += bytes\n"},
	}},
	{Row: "R-40", About: "who finds no room waits for it", Edits: []Edit{
		{"transferd/fence/target.go", "if s.Slot >= e.Page.Slots() {\n\t\treturn", "for s.Slot >= e.Page.Slots() {\n\t\tc.leave()\n\t\ttime.Sleep(time.Millisecond)\n\t\tc.enter()\n\t}\n\tif false {\n\t\treturn"},
	}},
	{Row: "R-41", About: "a refusal of the kernel ends the process", Edits: []Edit{
		{"transferd/internal/native/remote.go", "\tcase unix.EPERM:\n", "\tcase unix.EPERM:\n\t\tpanic(err)\n\tcase unix.ERANGE:\n"},
	}},
	{Row: "R-42", About: "of several readers only the last one is told that it is drained", Edits: []Edit{
		{"transferd/fence/target.go", "\t\tt.engine.Notify(n)\n", "\t\tif len(c.held) < 2 {\n\t\t\tt.engine.Notify(n)\n\t\t}\n"},
	}},
}
