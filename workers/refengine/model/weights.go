package model

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"sync"
)

// weights.bin, written by train/train.py: an 8-byte magic, the sizes below as
// uint32, then each tensor as float32 row scales and int8 rows, all
// little-endian, then the SHA-256 of everything before it.
//
//go:embed weights.bin
var weights []byte

const magic = "SHREFLM1"

var sizes = []uint32{layers, ringLayer, dim, heads, kvHeads, headDim, hidden, window, vocab,
	uint32(gramBuckets[0]), uint32(gramBuckets[1]), uint32(gramBuckets[2])}

// Model is the trained network. It is read-only: goroutines may share it.
type Model struct {
	embed    table
	grams    [history]table
	layer    [layers]layer
	head     matrix
	rotation []rotation
	revision string
}

type layer struct{ q, k, v, o, up, down matrix }

// table is an embedding kept as int8: a look-up reads one row of it.
type table struct {
	scale []byte // float32 a row
	rows  []byte // int8
}

// Load returns the embedded model, its checksum verified. It parses it once.
var Load = sync.OnceValues(func() (*Model, error) { return Parse(weights) })

// Revision names the weights: the SHA-256 of the file, in hex. Two engines
// whose revisions differ must not hand over to each other.
func (m *Model) Revision() string { return m.revision }

// Parse reads a weights file and refuses one that is damaged or of another shape.
func Parse(file []byte) (*Model, error) {
	if len(file) < len(magic)+sha256.Size {
		return nil, fmt.Errorf("%w: %d bytes", ErrWeights, len(file))
	}
	body, want := file[:len(file)-sha256.Size], file[len(file)-sha256.Size:]
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:], want) {
		return nil, fmt.Errorf("%w: checksum", ErrWeights)
	}
	header := []byte(magic)
	for _, size := range sizes {
		header = binary.LittleEndian.AppendUint32(header, size)
	}
	rest, ok := bytes.CutPrefix(body, header)
	if !ok {
		return nil, fmt.Errorf("%w: architecture", ErrWeights)
	}
	m := &Model{revision: hex.EncodeToString(want), rotation: rotations()}
	in := &reader{rest}
	m.embed = in.table(vocab)
	for i, size := range gramBuckets {
		m.grams[i] = in.table(size)
	}
	for l := range m.layer {
		m.layer[l] = layer{
			q: in.matrix(heads*headDim, dim), k: in.matrix(kvDim, dim), v: in.matrix(kvDim, dim),
			o: in.matrix(dim, heads*headDim), up: in.matrix(hidden, dim), down: in.matrix(dim, hidden),
		}
	}
	m.head = in.matrix(vocab, dim)
	if in.rest == nil || len(in.rest) != 0 {
		return nil, fmt.Errorf("%w: length", ErrWeights)
	}
	return m, nil
}

// reader cuts tensors off the file; a short file leaves rest nil.
type reader struct{ rest []byte }

func (r *reader) cut(n int) []byte {
	if len(r.rest) < n {
		r.rest = nil
		return make([]byte, n)
	}
	out := r.rest[:n]
	r.rest = r.rest[n:]
	return out
}

func (r *reader) table(rows int) table { return table{r.cut(4 * rows), r.cut(rows * dim)} }

func (r *reader) matrix(rows, columns int) matrix {
	scale, q := r.cut(4*rows), r.cut(rows*columns)
	m := matrix{rows, columns, make([]float32, rows*columns)}
	for i, b := range q {
		m.w[i] = float32(int8(b)) * scaleOf(scale, i/columns)
	}
	return m
}

func scaleOf(scales []byte, row int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(scales[4*row:]))
}

// addRow adds one row of the table to x.
func (t table) addRow(x []float32, row int) {
	scale := scaleOf(t.scale, row)
	for i, b := range t.rows[row*dim : (row+1)*dim] {
		x[i] += float32(float32(int8(b)) * scale)
	}
}
