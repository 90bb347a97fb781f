package placement

import (
	"time"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
)

// Term is one part of a score. An unknown term holds what was assumed.
type Term struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Known bool    `json:"known"`
}

// Scored is an engine, its score and why; the lower score is better. A P's
// score is in seconds, a D's the share of its blocks that would be occupied.
type Scored struct {
	Engine handoff.EngineID `json:"engine"`
	Score  float64          `json:"score"`
	Terms  []Term           `json:"terms"`
}

func scored(id handoff.EngineID, terms ...Term) Scored {
	s := Scored{Engine: id, Terms: terms}
	for _, t := range terms {
		s.Score += t.Value
	}
	return s
}

// known says whether every term is.
func (s Scored) known() bool {
	for _, t := range s.Terms {
		if !t.Known {
			return false
		}
	}
	return true
}

// ttft is the score of a P as a time: queue, prefill and transfer in a row, an
// upper bound of what overlaps.
func (s Scored) ttft() time.Duration { return time.Duration(s.Score * float64(time.Second)) }

func scoreD(r Request, e ledger.Registered) Scored {
	used, known := occupied(e)
	share := Term{"occupied after it", float64(used+r.blocks(e)) / float64(e.Blocks), true}
	if known {
		return scored(e.ID, share)
	}
	return scored(e.ID, share, Term{"load unknown", UnknownShare, false})
}

// scorePs scores every P for one D. A term that an engine's numbers cannot give
// is the worst that others' gave, and UnknownSeconds more.
func scorePs(r Request, f Fleet, ps []ledger.Registered, d ledger.Registered) []Scored {
	terms := make([][]Term, len(ps))
	worst := map[string]float64{}
	for i, p := range ps {
		terms[i] = []Term{queueTerm(f, p), prefillTerm(r, p), transferTerm(r, f, p, d)}
		if t, reshapes := reshapeTerm(r, f, p, d); reshapes {
			terms[i] = append(terms[i], t)
		}
		for _, t := range terms[i] {
			worst[t.Name] = max(worst[t.Name], t.Value)
		}
	}
	out := make([]Scored, len(ps))
	for i, p := range ps {
		for j, t := range terms[i] {
			if !t.Known {
				terms[i][j].Value = worst[t.Name] + UnknownSeconds
			}
		}
		out[i] = scored(p.ID, terms[i]...)
	}
	return out
}

func queueTerm(f Fleet, p ledger.Registered) Term {
	l, known := load(p)
	rate := p.PrefillTokensPerSecond
	if !known || rate <= 0 {
		return Term{Name: "queue"}
	}
	return Term{"queue", (float64(l.QueuedTokens) + float64(f.InFlight[p.ID])) / rate, true}
}

func prefillTerm(r Request, p ledger.Registered) Term {
	if p.PrefillTokensPerSecond <= 0 {
		return Term{Name: "prefill"}
	}
	return Term{"prefill", float64(r.PromptTokens) / p.PrefillTokensPerSecond, true}
}

func transferTerm(r Request, f Fleet, p, d ledger.Registered) Term {
	m, ok := f.Links[Link{p.ID, d.ID}]
	if !ok || m.BytesPerSecond <= 0 || r.StateBytes == 0 {
		return Term{Name: "transfer"}
	}
	return Term{"transfer", m.Setup.Seconds() + float64(r.StateBytes)/m.BytesPerSecond, true}
}
