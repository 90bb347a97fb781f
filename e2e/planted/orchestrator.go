package planted

// Bugs of more than one row.
var (
	waitsForEver = []Edit{
		{"transferd/transport/tcp/lane.go", "if errors.Is(err, os.ErrDeadlineExceeded) && time.Unix(0, l.lastByte.Load()).Add(deadline).After(time.Now()) {", "if errors.Is(err, os.ErrDeadlineExceeded) {"},
	}
	arrivalUntold = []Edit{
		{"transferd/fence/source.go", "\t\tclose(w.opened)\n\t\tdelete(c.arrivals, l.attempt)", "\t\tdelete(c.arrivals, l.attempt)"},
	}
)

// Orchestrator are those of e2e/MUSEUM.md: rows about the orchestrator (T-…), and those
// seen by running the stock parts (V-…).
var Orchestrator = []Bug{
	{Row: "T-02", About: "failures open no breaker", Edits: []Edit{
		{"activities/placement/breaker.go", "return c.ConsecutiveFailures >= failures }", "return false && c.ConsecutiveFailures >= failures }"},
	}},
	{Row: "T-03", About: "wrong bytes are a failure as any other", Edits: []Edit{
		{"activities/placement/breaker.go", "if handoff.CodeOf(err) == handoff.CodeIntegrity {", "if false {"},
	}},
	{Row: "T-04", About: "a failure whose engine is known counts against none", Edits: []Edit{
		{"activities/placement/breaker.go", "t.b.fail(k, result)", "_ = k"},
	}},
	{Row: "T-08", About: "where D has the beginning already, the rest is written behind its own place", Edits: []Edit{
		{"transferd/pull/fit.go", "return f.landing.View(piece)", "return f.landing.View(f.behind(piece))"},
	}, More: `func (f *fit) behind(piece uint32) uint32 {
	return (piece + uint32(len(f.held))) % f.source.Pieces()
}`},
	{Row: "T-09", About: "once many blocks are out, some are given to two", Edits: []Edit{
		{"workers/refengine/paged/block.go", "a.mu.free = a.mu.free[:first]", "a.mu.free = a.mu.free[:max(first, a.layout.Blocks-64)]"},
	}},
	{Row: "T-11", About: "groups of blocks are not compared", Edits: []Edit{
		{"contracts/handoff/manifest.go", "if s.Groups[i] != t.Groups[i] {", "if false {"},
	}},
	{Row: "T-12", About: "why a step was refused stays where it was", Edits: []Edit{
		{"activities/steps.go", "temporal.NewApplicationErrorWithOptions(steps.Clip(detail), code.String(),", "temporal.NewApplicationErrorWithOptions(steps.Clip(detail), handoff.CodeInternal.String(),"},
	}},
	{Row: "T-15", About: "P hears of a cancel after D has answered", Edits: []Edit{
		{"activities/undo.go", "\twg.Go(func() { _, errs[1] = s.UndoPrefill(ctx, in) })", "\twg.Wait()\n\twg.Go(func() { _, errs[1] = s.UndoPrefill(ctx, in) })"},
	}},
	{Row: "T-17", About: "whether D has room is not asked", Edits: []Edit{
		{"activities/placement/filter.go", "case s.decode && !fits(r, e):", "case false:"},
	}},
	{Row: "T-18", About: "an abort gives the blocks back, and not what lies beside them", Edits: []Edit{
		{"workers/refengine/held.go", "\te.release(h.seq)\n\treturn true", "\tif h.why() != nil {\n\t\treturn e.arena.Release(h.seq.Blocks()) == nil\n\t}\n\te.release(h.seq)\n\treturn true"},
	}},
	{Row: "T-19", About: "what a dead engine held stays with it", Edits: []Edit{
		{"transferd/fence/target.go", "c.mustFree(c.freeTarget(t)) // nobody is left", "_ = t // nobody is left"},
	}},
	{Row: "T-20", About: "who is written to is not renewed", Edits: []Edit{
		{"activities/renew.go", "d.targets = append(d.targets, h.plan.Attempt)", "_ = d"},
	}},
	{Row: "T-21", About: "an end is told once, heard or not", Edits: []Edit{
		{"workers/orchestrator/report.go", "\t\tcase <-time.After(pause):\n\t\tcase <-ctx.Done():\n\t\t\treturn err", "\t\tcase <-time.After(pause):\n\t\t\treturn err\n\t\tcase <-ctx.Done():\n\t\t\treturn err"},
	}},
	{Row: "T-22", About: "whose writing was taken over goes on writing", Edits: []Edit{
		{"activities/journal/redisjournal/lua/append.lua", "if a[1] and (a[1] ~= ARGV[1] or tonumber(ARGV[2]) < tonumber(a[2])) then", "if false then"},
	}},
	{Row: "T-23", About: "P is not told what to let go of", Edits: []Edit{
		{"activities/engine/vllm/reject.go", "append(edits, r.fetch(p, salt)...)...", "edits..."},
	}},
	{Row: "T-24", About: "the prefill goes on when D is gone", Edits: []Edit{
		{"activities/engine/native/reserve.go", "if a.d == s || a.p == s && !a.sealed() {", "if a.p == s && !a.sealed() {"},
	}},
	{Row: "T-27", About: "a D whose connection broke is refused from then on", Edits: []Edit{
		{"transferd/transport/tcp/server.go", "\tif s.cfg.TLS != nil && name != hello.From {", "\tif _, failed := failedPeers.Load(hello.From); failed {\n\t\treturn fence.Holder{}, s.refuse(st, handoff.Errorf(handoff.CodeUnavailable, \"%s failed before\", hello.From))\n\t}\n\tif s.cfg.TLS != nil && name != hello.From {"},
		{"transferd/transport/tcp/server.go", "\t\terr = s.attempt(ctx, st, holder)\n\t}\n", "\t\terr = s.attempt(ctx, st, holder)\n\t}\n\tif holder.Node != \"\" {\n\t\tfailedPeers.Store(holder.Node, true)\n\t}\n"},
	}, More: `var failedPeers sync.Map`},
	{Row: "T-28", About: "a peer is waited for as long as it says nothing", Edits: waitsForEver},
	{Row: "T-30", About: "a transfer that goes nowhere is not told", Edits: waitsForEver},
	{Row: "T-31", About: "a handshake that was refused is tried until its waiters lose patience", Edits: []Edit{
		{"transferd/pull/loop.go", "if handoff.CodeOf(err).Advice() != handoff.RetrySame && !another {", "if handoff.CodeOf(err).Advice() != handoff.RetrySame && !another && false {"},
	}},
	{Row: "T-33", About: "whoever pulls before P is ready never hears that it is", Edits: arrivalUntold},
	{Row: "T-35", About: "D is asked for room for the prompt alone", Edits: []Edit{
		{"activities/engine/native/reserve.go", "\tneed := (r.PromptTokens + r.Sampling.MaxTokens + d.BlockTokens - 1) / d.BlockTokens", "\tneed := (r.PromptTokens + d.BlockTokens - 1) / d.BlockTokens"},
	}},
	{Row: "T-44", About: "without a P the prefill is D's", Edits: []Edit{
		{"activities/placement/place.go", "if len(ds) == 0 || len(ps) == 0 {", "if len(ps) == 0 {\n\t\tps = ds\n\t}\n\tif len(ds) == 0 {"},
	}},
	{Row: "T-46", About: "of two engines the first is taken, whatever its load", Edits: []Edit{
		{"activities/placement/place.go", "if scores[j].Score < scores[i].Score {", "if false {"},
	}},
	{Row: "T-47", About: "an engine that was away once is not tried again", Edits: []Edit{
		{"activities/engine/reference/connections.go", "\tconn, err := c.dialer.DialContext(ctx, \"tcp\", address)\n", "\tif c.refused.Load() {\n\t\treturn nil, syscall.ECONNREFUSED\n\t}\n\tconn, err := c.dialer.DialContext(ctx, \"tcp\", address)\n"},
	}},
	{Row: "T-49", About: "an engine that is cordoned gets more", Edits: []Edit{
		{"activities/placement/filter.go", "case e.Cordoned:", "case false:"},
	}},
	{Row: "T-50", About: "revisions are not compared", Edits: []Edit{
		{"activities/placement/filter.go", "case p.Revision != d.Revision:", "case false:"},
	}},
	{Row: "T-51", About: "what D computes again is not counted", Edits: []Edit{
		{"activities/engine/native/prefill.go", "\t\tf.metrics.recomputed.Inc()\n", ""},
	}},
	{Row: "T-52", About: "a prefill that gives nothing to fetch is as good as another", Edits: []Edit{
		{"activities/engine/native/prefill.go", "if run.err == nil && transfer != nil {", "if run.err == nil && transfer != nil && false {"},
	}},
	{Row: "T-54", About: "who minted a capability is not asked", Edits: []Edit{
		{"contracts/capability/capability.go", "if !hmac.Equal(p.chain(k), p.mac) {", "if false {"},
	}},
	{Row: "V-01", About: "D is asked however late it is", Edits: []Edit{
		{"activities/engine/native/prefill.go", "if since := time.Since(run.asked); since > f.caps.Own() {", "if since := time.Since(run.asked); false {"},
	}},
	{Row: "V-02", About: "that P let go meanwhile is not looked at", Edits: []Edit{
		{"activities/engine/native/dispatch.go", "case up:", "case up && false:"},
	}},
	{Row: "V-03", About: "what D computed itself counts as moved", Edits: []Edit{
		{"activities/engine/native/dispatch.go", "if a.prefill.got.Transfer == nil {", "if false {"},
	}},
	{Row: "V-04", About: "whoever pulls before P is ready never hears that it is", Edits: arrivalUntold},
	{Row: "V-06", About: "a state is loaded unlooked at", Edits: []Edit{
		{"workers/llamacpp/state.go", "string(sum[:]) != string(head[16:])", "false && string(sum[:]) != string(head[16:])"},
	}},
	{Row: "V-07", About: "a capability for some pieces is one for all", Edits: []Edit{
		{"transferd/fence/reading.go", "if !r.pieces.Has(p) {", "if false {"},
	}},
	{Row: "V-08", About: "a peer is waited for as long as it says nothing", Edits: waitsForEver},
}
