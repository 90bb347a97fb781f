package explore

import (
	"crypto/sha256"
	"encoding/binary"
)

// key identifies a state: 128 bits of SHA-256 over canonical bytes.
type key [16]byte

// key hashes the state; buf is scratch space.
func (w *world) key(buf *[]byte) key {
	b := (*buf)[:0]
	b = binary.LittleEndian.AppendUint32(b, uint32(w.left))
	b = binary.LittleEndian.AppendUint64(b, w.soup)
	b = append(b, byte(w.current), pack(w.started, w.over, w.cancelled, w.reset, w.moved, w.twice),
		w.named.gateway, w.named.incarnation, w.named.number, w.end, w.endOf, w.endBy.gateway, w.endBy.incarnation, w.visible, w.conn, w.got, w.ever, w.refused, w.fenced, w.late, w.winner)
	for a := range many {
		for p := range 2 {
			b = append(b, byte(w.source[a][p]), byte(w.digest[a][p]), byte(w.target[a][p]), w.wire[a][p])
		}
		b = append(b, w.known[a])
	}
	b = w.td[0].AppendKey(b)
	b = w.td[1].AppendKey(b)
	b = w.tp.AppendKey(b)
	for g := range w.gw {
		b = append(b, pack(w.gw[g].dead), w.gw[g].incarnation, w.gw[g].held, w.gw[g].cleared, w.gw[g].wrote, w.gw[g].told, w.gw[g].gave)
		b = w.gw[g].reading.AppendKey(b)
	}
	for _, x := range []*worker{&w.wk[0], &w.wk[1], &w.hist} {
		b = x.appendKey(b)
	}
	*buf = b
	sum := sha256.Sum256(b)
	return key(sum[:16])
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
