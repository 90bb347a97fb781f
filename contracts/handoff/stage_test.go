package handoff

import (
	"fmt"
	"strings"
	"time"
)

// d runs one command at a D daemon.
func (s *stage) d(node, event, name, third string, arg map[string]string) string {
	td, plan := s.td[node], s.plans[name]
	a := plan.Attempt
	switch event {
	case "pull":
		return s.d(node, "post", name, "", nil) + s.d(node, "post", name, "", nil) +
			s.d(node, "land", name, "", map[string]string{"piece": "0"}) + s.d(node, "land", name, "", map[string]string{"piece": "1"}) +
			s.d(node, "verify", name, "", nil)
	case "validate":
		out := s.d(node, "ask", name, "", nil) + s.p("question", name, nil)
		if r := s.tp.Get(a); r != nil && r.State == SourceSealed {
			return out + s.d(node, "yes", name, "", nil)
		}
		return out + s.d(node, "no", name, "", nil)
	case "free":
		return s.told(node, name, td.Free(a), "freed")
	case "forget":
		return line("%s %s: forgotten %v", node, name, td.Forget(a))
	case "tick":
		return s.tick(node, name, td.Tick)
	case "restart":
		s.gen[node]++
		fresh := NewTargets(NodeID(node), s.gen[node])
		out := line("%s: incarnation %d", node, s.gen[node])
		if name == "adopt" {
			old := td.Get(s.plans[third].Attempt)
			fresh.Adopt(s.now, Adopted{Plan: old.Plan, Generation: old.Generation})
			out += line("%s %s: adopted as %s", node, third, fresh.Get(old.Plan.Attempt).State)
		}
		s.td[node] = fresh
		return out
	}
	e, ok := targetEvent(event)
	if !ok {
		s.t.Fatalf("unknown target event %q", event)
	}
	tokenOf := name
	if arg["token"] != "" {
		tokenOf = arg["token"]
	}
	seat := plan.D
	seat.Incarnation = Incarnation(s.number(arg["inc"], uint64(seat.Incarnation)))
	in := TargetInput{Event: e, Attempt: a, D: seat, Plan: &plan, Shape: &stageShape, Token: s.token[node+tokenOf],
		Piece: uint32(s.number(arg["piece"], 0)), Manifest: manifestOf(a), Question: Nonce(s.number(arg["question"], 1)),
		Grant: GrantID(s.number(arg["grant"], uint64(s.grant[name]))), Cause: CodeProgress, Reader: uint32(s.number(arg["number"], 0))}
	if in.Grant == 0 {
		in.Grant = 1
	}
	if arg["manifest"] == "other" {
		in.Manifest = Digest{1}
	}
	before := s.targetState(node, a)
	ans := td.Step(s.now, in)
	if e == TargetOpen && ans.Code == CodeNone {
		s.token[node+name] = ans.Token
	}
	note := ""
	if r := td.Get(a); r != nil && r.Posted > 0 {
		note = fmt.Sprintf(" (%d posted)", r.Posted)
	}
	return s.shown(node, name, e.String(), before, ans.State.String(), ans.Code, note)
}

func (s *stage) targetState(node string, a Attempt) string {
	if r := s.td[node].Get(a); r != nil {
		return r.State.String()
	}
	return "unknown"
}

func (s *stage) shown(who, name, event, before, after string, code Code, note string) string {
	if code != CodeNone {
		return line("%s %s %s: refused %s, stays %s%s", who, name, event, code, after, note)
	}
	if before == after {
		return line("%s %s %s: %s%s", who, name, event, after, note)
	}
	return line("%s %s %s: %s -> %s%s", who, name, event, before, after, note)
}

func (s *stage) told(who, name string, err error, ok string) string {
	if err != nil {
		return line("%s %s: refused %s", who, name, CodeOf(err))
	}
	return line("%s %s: %s", who, name, ok)
}

func (s *stage) tick(who, d string, tick func(Instant) []Attempt) string {
	pass, err := time.ParseDuration(d)
	if err != nil {
		s.t.Fatal(err)
	}
	s.now += pass
	var ended []string
	for _, a := range tick(s.now) {
		ended = append(ended, s.name(a))
	}
	return line("%s: %s pass, leases ended: %s", who, pass, strings.Join(append(ended, "-")[:max(1, len(ended))], " "))
}

// p runs one command at the P daemon.
func (s *stage) p(event, name string, arg map[string]string) string {
	plan := s.plans[name]
	a := plan.Attempt
	switch event {
	case "prefill":
		out := s.p("open", name, arg)
		s.p("announce", name, map[string]string{"piece": "0"})
		s.p("announce", name, map[string]string{"piece": "1"})
		return out + s.p("seal", name, nil)
	case "free":
		return s.told("p", name, s.tp.Free(a), "freed")
	case "tick":
		return s.tick("p", name, s.tp.Tick)
	case "restart":
		s.gen["p"]++
		s.tp = NewSources("p", s.gen["p"])
		return line("p: incarnation %d", s.gen["p"])
	}
	e, ok := sourceEvent(event)
	if !ok {
		s.t.Fatalf("unknown source event %q", event)
	}
	before := "unknown"
	if r := s.tp.Get(a); r != nil {
		before = r.State.String()
	}
	in := SourceInput{Event: e, Attempt: a, P: plan.P, Plan: &plan, Shape: &stageShape, Grant: GrantID(s.number(arg["grant"], uint64(s.grant[name]))),
		Piece: uint32(s.number(arg["piece"], 0)), Digest: uint32(s.number(arg["digest"], 7)), Manifest: manifestOf(a), Nonce: 1, Cause: CodeEngine}
	if arg["lane"] == "local" {
		in.Lane = LaneLocal
	}
	ans := s.tp.Step(s.now, in)
	if e == SourceOpen && ans.Code == CodeNone {
		s.grant[name] = ans.Grant
	}
	note := ""
	if r := s.tp.Get(a); r != nil {
		if r.Validated {
			note += ", validated"
		}
		if r.State == SourceClosed && r.Drained() {
			note += ", drained"
		} else if r.State == SourceClosed {
			note += ", not drained"
		}
	}
	return s.shown("p", name, e.String(), before, ans.State.String(), ans.Code, note)
}

// reader runs one command at a gateway's record of the client's stream.
func (s *stage) reader(who, event, name string) string {
	a, r := s.plans[name].Attempt, s.gate[who]
	switch event {
	case "deliver":
		if r.Deliver(a) {
			return line("%s %s: the byte is written", who, name)
		}
		return line("%s %s: the byte is dropped", who, name)
	case "give-up":
		return line("%s %s: %s", who, name, r.GiveUp(a))
	case "newest":
		r.Newest(a)
		return line("%s: reads %s and later", who, name)
	case "restart":
		s.gen[who]++
		s.gate[who] = &Reading{}
		return line("%s: incarnation %d, an empty record", who, s.gen[who])
	}
	s.t.Fatalf("unknown reader event %q", event)
	return ""
}

// worker runs one command at the coordinator.
func (s *stage) worker(event, name string, arg map[string]string) string {
	reader := func(g string) Reader { return Reader{Process: g, Incarnation: s.gen[g], Number: uint32(g[1]-'0') + 1} }
	switch event {
	case "start":
		s.coord = NewCoordinator(s.plans[name], Policy{})
	case "cancel":
		s.coord.Cancel()
	case "ended":
		s.coord.StreamEnded(codeNamed(arg["code"]), "")
	case "lost":
		s.coord.StreamLost(reader(arg["by"]), CodeEngine, "")
	case "reader":
		s.coord.NameReader(reader(name))
	default:
		st, ok := stepNamed(event)
		if !ok {
			s.t.Fatalf("unknown step %q", event)
		}
		r := Result{Step: st, Attempt: s.coord.Plan().Attempt, Code: codeNamed(arg["code"])}
		if arg["of"] != "" {
			r.Attempt = s.plans[arg["of"]].Attempt
		}
		for v := VerdictNone; v <= VerdictUnknown; v++ {
			if v.String() == arg["verdict"] {
				r.Verdict = v
			}
		}
		if arg["by"] != "" {
			r.Reader = reader(arg["by"])
		}
		if n, ok := s.plans[arg["next"]]; ok {
			r.Next = &n
		}
		s.coord.Step(r)
	}
	return s.wants()
}

// wants says where the coordinator stands and what it asks for.
func (s *stage) wants() string {
	var cmds []string
	for _, c := range s.coord.Commands() {
		hard := ""
		if c.Hard {
			hard = "!"
		}
		cmds = append(cmds, fmt.Sprintf("%s%s(%s)", c.Step, hard, s.name(c.Plan.Attempt)))
	}
	out := fmt.Sprintf("w %s: %s", s.name(s.coord.Plan().Attempt), s.coord.Phase())
	if o := s.coord.Outcome(); o != nil {
		out += fmt.Sprintf(" [%s committed=%v]", o.Code, o.Committed)
	}
	if len(cmds) > 0 {
		out += ", run " + strings.Join(cmds, " ")
	}
	return out + "\n"
}

// states lists every record.
func (s *stage) states() string {
	var out strings.Builder
	for _, r := range s.tp.All() {
		fmt.Fprintf(&out, "p %s: %s\n", s.name(r.Plan.Attempt), r.State)
	}
	for _, d := range []string{"d0", "d1"} {
		for _, r := range s.td[d].All() {
			mark := ""
			if r.State == TargetCommitted {
				mark = ", visible"
			}
			fmt.Fprintf(&out, "%s %s: %s%s\n", d, s.name(r.Plan.Attempt), r.State, mark)
		}
	}
	return out.String()
}

func (s *stage) pin(how string, block uint32, g GrantID) string {
	if how == "pin" {
		s.pins.Pin(block, g)
	} else {
		s.pins.Unpin(block, g)
	}
	return line("block %d: pinned %v", block, s.pins.Pinned(block))
}

func (s *stage) ledger(event, name string, arg map[string]string) string {
	a, blocks := s.plans[name].Attempt, uint32(s.number(arg["blocks"], 0))
	said := ""
	switch event {
	case "":
		s.room.Total = uint32(s.number(arg["total"], 0))
	case "reserve":
		if err := s.room.Reserve(s.now, a, blocks, LeaseDefault); err != nil {
			said = fmt.Sprintf(" refused %s,", CodeOf(err))
		}
	case "release":
		said = fmt.Sprintf(" held %v,", s.room.Release(a))
	case "tick":
		return s.tick("ledger", name, s.room.Expire)
	case "rebuild":
		s.room.Rebuild(s.now, map[Attempt]uint32{a: blocks}, LeaseDefault)
	}
	return line("ledger %s %s:%s %d of %d free", event, name, said, s.room.Free(), s.room.Total)
}
