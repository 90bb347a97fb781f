package layout

import (
	"fmt"
	"slices"

	"github.com/surehand/surehand/contracts/handoff"
)

// Model is what a pair of layouts does not say of the model that both serve.
type Model struct {
	// Heads is the number of KV heads of each cache over all ranks; 1 for a latent
	// one. With more ranks than heads each head lies on several ranks.
	Heads []uint32
	// Replicated are the classes of items that every rank holds alike. Others are
	// one rank's own, and move only between equal parallelism.
	Replicated []string
}

// Copy is bytes of one piece of a P rank that are bytes of one piece of a D rank.
type Copy struct {
	Rank     uint32 // of P
	Source   uint32 // piece of that rank's shape
	SourceAt uint32
	Target   uint32 // piece of the D rank's shape
	TargetAt uint32
	Bytes    uint32
}

// Reshard is a plan from P's layout to D's. It holds no blocks: the copies of any
// rank and prompt are worked out as they are walked.
type Reshard struct {
	p, d  Layout
	model Model
}

// Plan says how state of P's layout becomes state of D's, or why it cannot: the
// refusal comes before any byte.
func Plan(p, d Layout, m Model) (*Reshard, error) {
	for _, l := range []Layout{p, d} {
		if err := l.Validate(); err != nil {
			return nil, err
		}
	}
	if len(p.Caches) != len(d.Caches) || len(p.Caches) != len(m.Heads) {
		return nil, &Mismatch{"the number of caches", fmt.Sprint(len(p.Caches)), fmt.Sprintf("%d, of the model %d", len(d.Caches), len(m.Heads))}
	}
	for i := range p.Caches {
		if err := fits(i, p, d, m.Heads[i]); err != nil {
			return nil, err
		}
	}
	if len(p.Items) != len(d.Items) {
		return nil, &Mismatch{"the number of items", fmt.Sprint(len(p.Items)), fmt.Sprint(len(d.Items))}
	}
	for i, it := range p.Items {
		if it != d.Items[i] {
			return nil, &Mismatch{fmt.Sprintf("item %d", i), fmt.Sprint(it), fmt.Sprint(d.Items[i])}
		}
		if p.Parallel != d.Parallel && !slices.Contains(m.Replicated, it.Class) {
			return nil, &Mismatch{fmt.Sprintf("tensor parallelism, over which item %s is split in a way that is not known,", it.Class), fmt.Sprint(p.Parallel), fmt.Sprint(d.Parallel)}
		}
	}
	return &Reshard{p, d, m}, nil
}

// fits refuses caches whose elements are not the same.
func fits(i int, p, d Layout, heads uint32) error {
	a, b := p.Caches[i], d.Caches[i]
	of := fmt.Sprintf(" of cache %d", i)
	for _, f := range []struct {
		name string
		p, d any
	}{
		{"name", a.Name, b.Name}, {"dtype", a.DType, b.DType}, {"layers", a.Layers, b.Layers}, {"head dimension", a.HeadDim, b.HeadDim},
		{"window", a.Window, b.Window}, {"latent", a.Packing == Latent, b.Packing == Latent}, {"interior", a.Interior, b.Interior},
	} {
		if f.p != f.d {
			return &Mismatch{f.name + of, fmt.Sprint(f.p), fmt.Sprint(f.d)}
		}
	}
	if a.Interior != "" && (a.Order != b.Order || p.BlockTokens != d.BlockTokens) {
		return &Mismatch{"the block around interior " + a.Interior + of, fmt.Sprint(a.Order, p.BlockTokens), fmt.Sprint(b.Order, d.BlockTokens)}
	}
	if heads == 0 || a.Packing == Latent && heads != 1 {
		return handoff.Errorf(handoff.CodeInvalid, "%d heads%s", heads, of)
	}
	for _, l := range []Layout{p, d} {
		if err := split(l.Caches[i], l.Parallel, heads); err != nil {
			return err
		}
	}
	return nil
}

// split refuses ranks that do not share the heads evenly, each its own or each
// head on equally many ranks.
func split(c Cache, ranks, heads uint32) error {
	if heads%ranks == 0 && c.KVHeads == heads/ranks || ranks%heads == 0 && c.KVHeads == 1 {
		return nil
	}
	return handoff.Errorf(handoff.CodeInvalid, "cache %q: %d ranks of %d heads are no even share of %d heads", c.Name, ranks, c.KVHeads, heads)
}

// firstHead is the first of the heads that a rank holds.
func firstHead(rank, ranks, heads, own uint32) uint32 {
	if ranks > heads {
		return rank / (ranks / heads)
	}
	return rank * own
}

// Each walks the copies that fill one rank of D for so many tokens, runs merged,
// until yield says no. Of replicated heads a D rank reads one replica, another
// for each D rank, so that the ranks of P share the work.
func (r *Reshard) Each(rank, tokens uint32, yield func(Copy) bool) {
	m := merger{yield: yield, going: true}
	ps, ds := r.p.Shape("", tokens), r.d.Shape("", tokens)
	group, item := 0, 0
	for i, c := range r.p.Caches {
		w := walk{r: r, cache: i, rank: rank, tokens: tokens, out: &m}
		if c.Window > 0 {
			w.tokens = c.Window
			w.from = func(layer, block uint32) (piece, at uint32) { return ring(ps.ItemPiece(item), r.p, i, layer, block) }
			w.to = func(layer, block uint32) (piece, at uint32) { return ring(ds.ItemPiece(item), r.d, i, layer, block) }
			w.run()
			item++
			continue
		}
		w.from = func(layer, block uint32) (piece, at uint32) { return ps.Piece(group, layer, block), 0 }
		w.to = func(layer, block uint32) (piece, at uint32) { return ds.Piece(group, layer, block), 0 }
		w.run()
		group++
	}
	for i, it := range r.p.Items {
		from := rank % r.p.Parallel // with equal parallelism the rank itself, else any replica
		m.add(Copy{from, ps.ItemPiece(item + i), 0, ds.ItemPiece(item + i), 0, it.Bytes})
	}
	m.flush()
}

// ring places a block of a sliding-window ring: the ring of each layer is its
// blocks one after the other.
func ring(piece uint32, l Layout, cache int, layer, block uint32) (uint32, uint32) {
	c := l.Caches[cache]
	bytes := uint32(c.tokenBits() / 8)
	return piece, (layer*c.Window + block*l.BlockTokens) * bytes
}

// merger joins copies that go on where the last one ended.
type merger struct {
	yield func(Copy) bool
	last  Copy
	going bool
}

func (m *merger) add(c Copy) {
	l := &m.last
	if c.Rank == l.Rank && c.Source == l.Source && c.Target == l.Target && c.SourceAt == l.SourceAt+l.Bytes && c.TargetAt == l.TargetAt+l.Bytes && l.Bytes > 0 {
		l.Bytes += c.Bytes
		return
	}
	m.flush()
	m.last = c
}

func (m *merger) flush() {
	if m.going && m.last.Bytes > 0 {
		m.going = m.yield(m.last)
	}
	m.last = Copy{}
}
