package bench

import (
	"fmt"
	"strings"

	"github.com/surehand/surehand/contracts/handoff"
)

// Tables are the block tables by name: what one handoff moves, cut as a model
// cuts it.
var Tables = []string{"16KiB", "64KiB", "1MiB", "llama-3-8b", "hybrid"}

// table fills bytes with whole blocks.
func table(name string, bytes uint64) (handoff.Shape, error) {
	s := handoff.Shape{Revision: "bench", Layout: handoff.Digest{1}, Tokens: 1}
	group := func(name string, layers, blockBytes uint32, share uint64) {
		blocks := max(share/uint64(layers)/uint64(blockBytes), 1)
		s.Groups = append(s.Groups, handoff.Group{Name: name, Layers: layers, Blocks: uint32(blocks), BlockBytes: blockBytes})
	}
	switch name {
	case "16KiB":
		group("kv", 1, 16<<10, bytes)
	case "64KiB":
		group("kv", 1, 64<<10, bytes)
	case "1MiB":
		group("kv", 1, 1<<20, bytes)
	case "llama-3-8b": // 32 layers, 8 KV heads of 128, bfloat16, K and V apart, 16-token blocks
		group("kv", 64, 32<<10, bytes)
	case "hybrid": // few full layers, many sliding-window layers, state-space states
		group("full", 8, 64<<10, bytes/2)
		group("window", 24, 16<<10, bytes/4)
		for i := range 24 {
			s.Items = append(s.Items, handoff.Item{Class: fmt.Sprint("ssm-", i), Bytes: 2 << 20})
		}
	default:
		return s, fmt.Errorf("no table %q: there are %s", name, strings.Join(Tables, ", "))
	}
	return s, s.Validate()
}

// scatter gives every piece a place in no order, and the size of a segment that
// holds them all.
func scatter(s handoff.Shape) (offsets []uint64, size int) {
	n := s.Pieces()
	lengths := make([]uint32, n)
	for i := range n {
		p, _ := s.Place(i)
		lengths[i] = p.Bytes
	}
	step := uint64(n)*618/1000 | 1 // far apart, and every place once
	for gcd(step, uint64(n)) != 1 {
		step += 2
	}
	offsets = make([]uint64, n)
	at := uint64(0)
	for i, k := uint32(0), uint64(0); i < n; i, k = i+1, (k+step)%uint64(n) {
		offsets[k] = at
		at += uint64(lengths[k])
	}
	return offsets, int(at)
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
