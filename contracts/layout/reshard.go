package layout

import (
	"fmt"
	"slices"

	"github.com/surehand/surehand/contracts/handoff"
)

// MaxParts bounds the copies that one piece may be cut into: vectors of a few
// bytes between opposite orders are refused instead of moved for ever.
const MaxParts = 1 << 17

// Model is what a pair of layouts does not say of the model that both serve.
type Model struct {
	// Heads is the number of KV heads of each cache over all ranks; 1 for a latent
	// one. With more ranks than heads each head lies on several ranks.
	Heads []uint32
	// Replicated are the classes of items that every rank holds alike. Others are
	// one rank's own, and move only between equal parallelism.
	Replicated []string
}

// Described is a layout with its model: enough to be resharded by who gets it.
type Described struct {
	Layout Layout
	Model  Model
}

// Reshard is a plan from P's layout to D's, for all ranks of either. It holds no
// blocks: For binds it to a prompt length.
type Reshard struct {
	p, d  Layout
	model Model
	uses  [][][]use // of each cache and rank of P
}

// use says which heads of a rank of P are heads of a rank of D.
type use struct{ rank, source, target, heads uint32 }

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
	r := &Reshard{p: p, d: d, model: m}
	for i := range p.Caches {
		if err := fits(i, p, d, m.Heads[i]); err != nil {
			return nil, err
		}
		r.uses = append(r.uses, r.share(i))
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
	return r, nil
}

// Between is Plan for two engines that each describe their own model.
func Between(p, d Described) (*Reshard, error) {
	if !slices.Equal(p.Model.Heads, d.Model.Heads) {
		return nil, &Mismatch{"kv heads over all ranks", fmt.Sprint(p.Model.Heads), fmt.Sprint(d.Model.Heads)}
	}
	if a, b := slices.Sorted(slices.Values(p.Model.Replicated)), slices.Sorted(slices.Values(d.Model.Replicated)); !slices.Equal(a, b) {
		return nil, &Mismatch{"the items that ranks hold alike", fmt.Sprint(a), fmt.Sprint(b)}
	}
	return Plan(p.Layout, d.Layout, d.Model)
}

// Copies is how many copies a prompt of so many tokens is cut into, as a measure
// of what the plan costs; it looks at the pieces of one stretch of blocks.
func (r *Reshard) Copies(tokens uint32) uint64 {
	stretch := max(r.p.BlockTokens, r.d.BlockTokens)
	b, n := r.For(stretch), uint64(0)
	var parts []Part
	for piece := range b.p.pieces() {
		parts = b.Parts(piece, parts[:0])
		n += uint64(len(parts))
	}
	return n * ((uint64(tokens) + uint64(stretch) - 1) / uint64(stretch))
}

// Source is the fingerprint of P's layout.
func (r *Reshard) Source() handoff.Digest { return r.p.Fingerprint() }

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
	width := uint64(a.HeadDim) * uint64(a.DType.Bits()) / 8
	for _, l := range []Layout{p, d} {
		if err := split(l.Caches[i], l.Parallel, heads); err != nil {
			return err
		}
		if n := l.Caches[i].pieceBytes(l.BlockTokens) / width; n > MaxParts {
			return handoff.Errorf(handoff.CodeTooLarge, "a piece%s of %d vectors, limit %d", of, n, MaxParts)
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

// share finds who at D needs the heads of each rank of P. Of replicated heads the
// first replica is read, once, however many ranks of D want it.
func (r *Reshard) share(cache int) [][]use {
	p, d, total := r.p, r.d, r.model.Heads[cache]
	pc, dc := p.Caches[cache], d.Caches[cache]
	uses := make([][]use, p.Parallel)
	for rank := range d.Parallel {
		begin := firstHead(rank, d.Parallel, total, dc.KVHeads)
		for h := begin; h < begin+dc.KVHeads; {
			from, own := h/pc.KVHeads, h%pc.KVHeads
			count := min(pc.KVHeads-own, begin+dc.KVHeads-h)
			if p.Parallel > total {
				from, own, count = h*(p.Parallel/total), 0, 1
			}
			uses[from] = append(uses[from], use{rank, own, h - begin, count})
			h += count
		}
	}
	return uses
}
