package handoff

import (
	"math/rand"
	"reflect"
	"testing"
)

// A bulk event is the same as so many events one after the other.
func TestABulkEventIsSoManySingleOnes(t *testing.T) {
	rng := rand.New(rand.NewSource(3))
	shape := Shape{Revision: "m", Layout: Digest{1}, Tokens: 1, Groups: []Group{{Name: "g", Layers: 1, Blocks: 200, BlockBytes: 8}}}
	plan := Plan{Attempt: Attempt{Handoff: "h", Epoch: 1, Nonce: 1}, P: Seat{Engine: "p", Node: "tp", Incarnation: 1}, D: Seat{Engine: "d", Node: "td", Incarnation: 1}, BodyDigest: Digest{1}}
	one, many := NewTargets("td", 1), NewTargets("td", 1)
	from, fromMany := NewSources("tp", 1), NewSources("tp", 1)
	var token Token
	for _, x := range []*Targets{one, many} {
		token = x.Step(0, TargetInput{Event: TargetOpen, Attempt: plan.Attempt, D: plan.D, Plan: &plan, Shape: &shape}).Token
	}
	var grant GrantID
	for _, x := range []*Sources{from, fromMany} {
		grant = x.Step(0, SourceInput{Event: SourceOpen, Attempt: plan.Attempt, P: plan.P, Plan: &plan, Shape: &shape, Lane: LaneServed}).Grant
		for p := range uint32(150) {
			x.Step(0, SourceInput{Event: SourceAnnounce, Attempt: plan.Attempt, Piece: p})
		}
	}
	for range 4000 {
		piece, n := uint32(rng.Intn(190)), uint32(rng.Intn(12))
		in := TargetInput{Event: []TargetEvent{TargetPost, TargetLand, TargetFail}[rng.Intn(3)], Attempt: plan.Attempt, Token: token, Piece: piece, Count: n}
		bulk := many.Step(0, in)
		if bulk.Code == CodeNone {
			for i := range uint32(count(n)) {
				in.Count, in.Piece = 0, piece+i
				if ans := one.Step(0, in); ans.Code != CodeNone {
					t.Fatalf("%+v: %v, in bulk it is accepted", in, ans.Err())
				}
			}
		}
		read := SourceInput{Event: []SourceEvent{SourceRead, SourceReadDone}[rng.Intn(2)], Attempt: plan.Attempt, Grant: grant, Piece: piece, Count: n}
		refused := fromMany.Step(0, read).Code
		if refused == CodeNone {
			for i := range uint32(count(n)) {
				read.Count, read.Piece = 0, piece+i
				if ans := from.Step(0, read); ans.Code != CodeNone {
					t.Fatalf("%+v: %v, in bulk it is accepted", read, ans.Err())
				}
			}
		} else if read.Event == SourceRead && piece+uint32(count(n)) <= 150 {
			t.Fatalf("%+v is refused: %v", read, refused)
		}
		if !reflect.DeepEqual(one.Get(plan.Attempt), many.Get(plan.Attempt)) || !reflect.DeepEqual(from.Get(plan.Attempt), fromMany.Get(plan.Attempt)) {
			t.Fatal("the records differ")
		}
	}
	for _, first := range []uint32{199, 200, 1<<32 - 1} {
		if ans := many.Step(0, TargetInput{Event: TargetPost, Attempt: plan.Attempt, Token: token, Count: 9}); ans.Code == CodeNone {
			if ans := many.Step(0, TargetInput{Event: TargetLand, Attempt: plan.Attempt, Token: token, Piece: first, Count: 2}); ans.Code != CodeInvalid {
				t.Fatalf("pieces %d and on landed: %+v", first, ans)
			}
		}
	}
}
