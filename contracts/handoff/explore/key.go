package explore

import (
	"crypto/sha256"
	"encoding/binary"
)

// key identifies a state: 128 bits of SHA-256 over canonical bytes.
type key [16]byte

// key hashes the state; buf is scratch space.
func (w *world) key(buf *[]byte) key {
	*buf = w.appendKey((*buf)[:0])
	sum := sha256.Sum256(*buf)
	return key(sum[:16])
}

// compact is 64 bits of the same, never 0, and kept: only a settled state has it.
func (w *world) compact(buf *[]byte) uint64 {
	if w.print == 0 {
		*buf = w.appendKey((*buf)[:0])
		w.print = hash64(*buf)
	}
	return w.print
}

func hash64(b []byte) uint64 {
	sum := sha256.Sum256(b)
	return max(binary.LittleEndian.Uint64(sum[:]), 1)
}

func (w *world) appendKey(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(w.left))
	b = binary.LittleEndian.AppendUint64(b, w.soup)
	b = append(b, byte(w.current), pack(w.started, w.over, w.cancelled, w.reset, w.moved, w.twice, w.keyFree),
		w.named.gateway, w.named.incarnation, w.named.number, w.end, w.endOf, w.endBy.gateway, w.endBy.incarnation, w.visible, w.conn, w.got, w.ever, w.refused, w.fenced, w.late, w.winner, w.lost)
	for a := range many {
		for p := range 2 {
			b = append(b, byte(w.source[a][p]), byte(w.digest[a][p]), byte(w.target[a][p]), w.wire[a][p])
		}
		b = append(b, w.known[a])
	}
	b = w.td[0].AppendKeyOf(b, w.request)
	b = w.td[1].AppendKeyOf(b, w.request)
	b = w.tp.AppendKeyOf(b, w.request)
	for g := range w.gw {
		b = append(b, pack(w.gw[g].dead), w.gw[g].incarnation, w.gw[g].held, w.gw[g].cleared, w.gw[g].wrote, w.gw[g].told, w.gw[g].gave)
		b = w.gw[g].reading.AppendKey(b)
	}
	for _, x := range []*worker{&w.wk[0], &w.wk[1], &w.hist} {
		b = x.appendKey(b)
	}
	return b
}

func (x *worker) appendKey(b []byte) []byte {
	if x.coord == nil {
		return append(b, 'w')
	}
	b = append(b, 'W', pack(x.cancel, x.ended), byte(len(x.tasks)))
	for _, t := range x.tasks {
		b = append(b, byte(t.step), t.attempt, pack(t.hard), t.to.gateway, t.to.incarnation, t.to.number, byte(t.verdict))
	}
	return x.coord.AppendKey(b)
}

func pack(on ...bool) byte {
	var b byte
	for i, x := range on {
		if x {
			b |= 1 << i
		}
	}
	return b
}
