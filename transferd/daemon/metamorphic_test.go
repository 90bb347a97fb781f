package daemon_test

import (
	"fmt"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
	"github.com/surehand/surehand/transferd/internal/native/fakecuda"
)

// operations are a handoff whose source changed under its digest, one that is undone
// before its pull, one whose source its engine drops, and a whole one. It gives the
// code of each answer; after each of them no byte of D lies out of place.
func (s *soakPair) operations(t *testing.T) (codes []handoff.Code) {
	ctx := background(t)
	note := func(err error) { codes = append(codes, handoff.CodeOf(err)) }
	both := func(o open) {
		check(t, s.free(ctx, s.p, o.plan.Attempt, client.SourceDrained))
		check(t, s.free(ctx, s.d, o.plan.Attempt, client.TargetDrained))
	}
	undo := func(o open, sides client.Sides, at *child) {
		_, err := at.control.Undo(ctx, o.plan, o.plan.Attempt.Operation("undo"), sides)
		check(t, err)
	}
	pull := func(o open) {
		_, err := s.dh.control.Pull(ctx, o.spec, nil)
		note(err)
		_, err = s.dh.control.Commit(ctx, o.plan, o.token, o.plan.Attempt.Operation("commit"), 0)
		note(err)
	}

	changed, err := s.open(ctx)
	check(t, err)
	check(t, s.pm.WriteAt(s.at[2]+100, []byte{0xff}))
	pull(changed)
	undo(changed, client.Sides{Source: true}, s.ph)
	both(changed)

	undone, err := s.open(ctx)
	check(t, err)
	undo(undone, client.Sides{Target: true}, s.dh)
	pull(undone)
	undo(undone, client.Sides{Source: true}, s.ph)
	both(undone)

	dropped, err := s.open(ctx)
	check(t, err)
	check(t, s.p.CloseSource(ctx, dropped.plan.Attempt, handoff.CodeEngine))
	pull(dropped)
	both(dropped)

	check(t, s.transfer(ctx))
	return codes
}

// Metamorphic, the whole of it on processes of their own: memfd, process and device
// memory on either side, of one daemon and of two, leave the same after the same.
func TestEveryMemoryBesideADeviceLeavesTheSame(t *testing.T) {
	fake := fakecuda.Build(t)
	ph, dh := startChild(t, "tp", cudaVariable+"="+fake.Path), startChild(t, "td", cudaVariable+"="+fake.Path)
	t.Run("pairs", func(t *testing.T) { // its engines leave before the daemons end
		plain := func(_ string, bytes int) (*client.Memory, error) { return client.NewPlainMemory(bytes) }
		kinds := map[string]memoryOf{"memfd": client.NewMemory, "process": plain, "device": onDevice(fake, 0)}
		first := ""
		for lane, d := range map[string]*child{"local": ph, "tcp": dh} {
			for pk, pm := range kinds {
				for dk, dm := range kinds {
					name := fmt.Sprintf("%s-%s-%s", lane, pk, dk)
					codes := fmt.Sprint(newSoakPair(t, ph, d, name, pm, dm).operations(t))
					if first == "" {
						first = codes
					}
					if codes != first {
						t.Errorf("%s answers %s, another %s", name, codes, first)
					}
				}
			}
		}
		t.Log(first)
	})
	ph.end(t)
	dh.end(t)
	fake.MustBeClean(t)
}
