package check

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
)

// ExerciseBlocks is what an exercised engine has.
const ExerciseBlocks = 6

// Exercise asks a ledger of any make at random, for a history to be judged: one
// engine's promises, which no request is placed on, and one key.
type Exercise struct {
	Ledger ledger.Ledger
	Engine handoff.EngineID
	Key    string
	Deaf   int // every so many answers are lost on purpose; 0: none
}

// Register makes the engine known, with nothing promised.
func (x Exercise) Register(ctx context.Context) error {
	layout := handoff.Digest{1}
	e := ledger.Engine{ID: x.Engine, Role: ledger.RoleBoth, Model: "exercise", Revision: "r", Layout: layout[:], Node: "exercise", NodeIncarnation: 1, ProcessIncarnation: 1,
		Address: "a", Control: "c", Peer: "p", Blocks: ExerciseBlocks, BlockTokens: 16, MaxTokens: 1 << 10}
	if err := x.Ledger.Register(ctx, e, time.Hour); err != nil {
		return err
	}
	return x.Ledger.Rebuild(ctx, ledger.RebuildRequest{Engine: x.Engine, Incarnation: 1, Total: ExerciseBlocks, Lease: time.Minute})
}

// said are the refusals that the models know; any other error is an answer that
// says nothing of what was done.
var said = map[handoff.Code]string{handoff.CodeCapacity: "capacity", handoff.CodeClosed: "closed", handoff.CodeKeyReused: "reused", handoff.CodeConflict: "conflict"}

// Ask does one operation, and notes it.
func (x Exercise) Ask(ctx context.Context, rng *rand.Rand, promises, keys *Log) {
	n := rng.IntN(4)
	who := fmt.Sprintf("h%d", n)
	a := handoff.Attempt{Handoff: handoff.HandoffID(who), Epoch: 1, Nonce: 1}
	body := handoff.Digest{byte(1 + n%2)}
	answer := func(done func(string), err error, ok string) {
		word := ok
		if err != nil {
			if word = said[handoff.CodeOf(err)]; word == "" {
				word = Unknown
			}
		}
		if x.Deaf > 0 && rng.IntN(x.Deaf) == 0 {
			word = Unknown
		}
		done(word)
	}
	b := fmt.Sprint(body[0])
	switch rng.IntN(5) {
	case 0:
		done := promises.Call(Op{Object: string(x.Engine), Name: "reserve", Who: who, Size: 2})
		answer(done, x.Ledger.Reserve(ctx, ledger.ReserveRequest{Engine: x.Engine, Incarnation: 1, Attempt: a, Blocks: 2, Lease: time.Minute}), "ok")
	case 1:
		done := promises.Call(Op{Object: string(x.Engine), Name: "release", Who: who})
		answer(done, x.Ledger.Release(ctx, x.Engine, a), "ok")
	case 2:
		done := keys.Call(Op{Object: x.Key, Name: "claim", Who: who, Body: b})
		got, err := x.Ledger.Claim(ctx, ledger.ClaimRequest{Tenant: "exercise", Key: x.Key, Body: body, Handoff: a.Handoff, Owner: "o", Window: time.Hour})
		ok := "mine"
		switch {
		case got.State == ledger.StateSettled:
			ok = "settled by " + string(got.Handoff)
		case !got.Mine:
			ok = "held by " + string(got.Handoff)
		}
		answer(done, err, ok)
	case 3:
		done := keys.Call(Op{Object: x.Key, Name: "unclaim", Who: who, Body: b})
		answer(done, x.Ledger.Unclaim(ctx, "exercise", x.Key, a.Handoff), "ok")
	case 4:
		done := keys.Call(Op{Object: x.Key, Name: "settle", Who: who, Body: b})
		answer(done, x.Ledger.Settle(ctx, ledger.SettleRequest{Tenant: "exercise", Key: x.Key, Body: body, Handoff: a.Handoff, Outcome: ledger.OutcomeCompleted, Window: time.Hour}), "ok")
	}
}
