package placement

import (
	"cmp"
	"math"
	"slices"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
)

// Choice is a proposal and its reasons; it fits into a workflow's history.
type Choice struct {
	P, D ledger.Registered `json:"-"`

	PScore Scored `json:"p"`
	DScore Scored `json:"d"`
	// Against is the P that lost the draw; empty when only one could serve.
	Against *Scored `json:"against,omitempty"`
	// Candidates could have been chosen: D, then P for the chosen D.
	Candidates [2]int `json:"candidates"`
	Blocks     uint32 `json:"blocks"` // on D, prompt and growth
	Pinned     bool   `json:"pinned,omitempty"`
	// Revisited: nothing but engines of earlier epochs was left.
	Revisited bool `json:"revisited,omitempty"`
}

// Random draws uniformly from 0..n-1. rand.IntN of math/rand/v2 is one.
type Random func(n int) int

// Place chooses, or answers a *Refusal: CodeCapacity when an engine could serve
// but has no room or no time, CodeUnavailable when none may be asked now,
// CodeTooLarge when none could ever hold the request. Pure but for random.
func Place(r Request, f Fleet, random Random) (Choice, error) {
	c, err := place(r, f, random)
	exclude := r.Exclude
	if err == nil || len(exclude) == 0 {
		return c, err
	}
	// A failed step may have named both seats. One side's exclusions are lifted
	// before both: with one D, a P that failed stays out while another can serve.
	for _, keep := range []side{sideP, sideD, {serves: func(ledger.Role) bool { return false }}} {
		r.Exclude = keep.only(exclude, f)
		again, err2 := place(r, f, random)
		if err2 == nil {
			again.Revisited = true
			return again, nil
		}
	}
	return c, err // the reasons of the first look say more
}

// only keeps those of the excluded engines that serve on this side.
func (s side) only(exclude []handoff.EngineID, f Fleet) []handoff.EngineID {
	return slices.DeleteFunc(slices.Clone(exclude), func(id handoff.EngineID) bool {
		i := slices.IndexFunc(f.Engines, func(e ledger.Registered) bool { return e.ID == id })
		return i < 0 || !s.serves(f.Engines[i].Role)
	})
}

func place(r Request, f Fleet, random Random) (Choice, error) {
	var why reasons
	ds := candidates(sideD, r, f, &why)
	ps := candidates(sideP, r, f, &why)
	if len(ds) == 0 || len(ps) == 0 {
		return Choice{}, why.refusal()
	}
	for _, d := range inOrder(r, ds, random) {
		pairs := slices.DeleteFunc(slices.Clone(ps), func(p ledger.Registered) bool {
			reason := refusePair(f, p, d)
			why.add("pair", reason)
			if reason == ReasonLayout {
				why.mismatch(f.plan(p, d).err)
			}
			return reason != ""
		})
		scores := inTime(r, scorePs(r, f, pairs, d), &why)
		if len(scores) == 0 {
			continue
		}
		scores = worthReshaping(scores)
		best, against := betterOfTwo(scores, random)
		p := pairs[slices.IndexFunc(pairs, func(e ledger.Registered) bool { return e.ID == best.Engine })]
		return Choice{
			P: p, D: d, PScore: best, DScore: scoreD(r, d), Against: against,
			Candidates: [2]int{len(ds), len(scores)},
			Blocks:     uint32(r.blocks(d)), // fits: no more than d.Blocks
			Pinned:     r.PinP != "" || r.PinD != "",
		}, nil
	}
	return Choice{}, why.refusal()
}

// candidates are the engines without a reason against them, by id, so that one
// view and one random source always give one choice.
func candidates(s side, r Request, f Fleet, why *reasons) []ledger.Registered {
	var out []ledger.Registered
	for _, e := range f.Engines {
		reason := s.refuse(r, f, e)
		why.add(s.name, reason)
		if reason == "" {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b ledger.Registered) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// inOrder sorts by score; equals are in random order.
func inOrder(r Request, ds []ledger.Registered, random Random) []ledger.Registered {
	for i := len(ds) - 1; i > 0; i-- {
		j := random(i + 1)
		ds[i], ds[j] = ds[j], ds[i]
	}
	score := make(map[handoff.EngineID]float64, len(ds))
	for _, d := range ds {
		score[d.ID] = scoreD(r, d).Score
	}
	slices.SortStableFunc(ds, func(a, b ledger.Registered) int { return cmp.Compare(score[a.ID], score[b.ID]) })
	return ds
}

// inTime drops those known to miss the deadline. What is not known to miss it
// is tried: the deadline itself decides.
func inTime(r Request, scores []Scored, why *reasons) []Scored {
	if r.Deadline <= 0 {
		return scores
	}
	return slices.DeleteFunc(scores, func(s Scored) bool {
		late := s.known() && s.ttft() > r.Deadline
		if late {
			why.late(s.ttft() - r.Deadline)
		}
		return late
	})
}

// worthReshaping drops the P whose state would be reshaped though another's need
// not be and is no later here, its queue counted: the draw of two must not miss that one.
func worthReshaping(scores []Scored) []Scored {
	best := math.Inf(1)
	for _, s := range scores {
		if !s.reshapes() {
			best = min(best, s.Score)
		}
	}
	return slices.DeleteFunc(slices.Clone(scores), func(s Scored) bool { return s.reshapes() && s.Score >= best })
}

// betterOfTwo draws two and keeps the better: close to the best one's queue at
// once, without every gateway picking the same.
func betterOfTwo(scores []Scored, random Random) (best Scored, against *Scored) {
	i := random(len(scores))
	if len(scores) == 1 {
		return scores[i], nil
	}
	j := random(len(scores) - 1)
	if j >= i {
		j++
	}
	if scores[j].Score < scores[i].Score {
		i, j = j, i
	}
	return scores[i], &scores[j]
}
