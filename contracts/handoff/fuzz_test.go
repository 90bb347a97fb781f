package handoff

import "testing"

// FuzzMachines feeds both daemons whatever the bytes say: no panic, every
// record sound, every answer a path of the tables.
func FuzzMachines(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 2, 0, 2, 1, 5, 0, 6, 0, 7, 0, 9, 0})
	f.Add([]byte{10, 0, 0, 0, 16, 9, 13, 1, 17, 2})
	f.Fuzz(func(t *testing.T, data []byte) {
		td, tp := NewTargets("d0", 1), NewSources("p", 1)
		var trace Trace
		for len(data) >= 2 {
			event, arg := data[0], data[1]
			data = data[2:]
			p := testPlan(Epoch(1+arg&1), Nonce(1+arg>>1&1))
			if arg&0x80 != 0 {
				p.D.Incarnation, p.P.Incarnation = 2, 2
			}
			in := TargetInput{Event: TargetEvent(event % byte(targetEvents)), Attempt: p.Attempt, D: p.D, Plan: &p, Shape: &stageShape,
				Piece: uint32(arg >> 2 & 3), Manifest: Digest{1 + arg>>4&1}, Question: Nonce(arg >> 4 & 3), Grant: GrantID(arg >> 5 & 1)}
			from := TargetUnknown
			if r := td.Get(p.Attempt); r != nil {
				from = r.State
				if arg&0x40 == 0 {
					in.Token = r.Token()
				}
			}
			ans := td.Step(0, in)
			if from == TargetUnknown {
				trace = Trace{} // one attempt's path from its beginning is followed at a time
			}
			if k := followed(&trace, p.Attempt); k == "" && from == TargetUnknown || k == from.String() {
				if err := trace.Add(td.Traced(in, from, ans)); err != nil {
					t.Fatal(err)
				}
			}
			sin := SourceInput{Event: SourceEvent(event % byte(sourceEvents)), Attempt: p.Attempt, P: p.P, Plan: &p, Shape: &stageShape,
				Lane: Lane(arg >> 5 & 1), Piece: uint32(arg >> 2 & 3), Digest: uint32(arg >> 4 & 1)}
			if r := tp.Get(p.Attempt); r != nil && arg&0x40 == 0 {
				sin.Grant, sin.Manifest = r.Grant, r.Manifest
			}
			tp.Step(0, sin)
			if event&0x80 != 0 {
				_, _ = td.Free(p.Attempt), tp.Free(p.Attempt)
			}
			for _, r := range td.All() {
				checkTarget(t, td, r)
			}
			for _, r := range tp.All() {
				if r.Posted < 0 || r.Freed && !r.Drained() || r.State == SourceSealed && r.Left != 0 {
					t.Fatalf("%+v", r)
				}
			}
		}
	})
}

// followed is where the trace saw the target of a last, "" when it did not.
func followed(t *Trace, a Attempt) string {
	for k, s := range t.at {
		if k.attempt == a && k.machine == "target" {
			return s
		}
	}
	return ""
}
