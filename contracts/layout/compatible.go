package layout

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/surehand/surehand/contracts/handoff"
)

// Mismatch is the first difference between P's layout and D's. Its code is
// handoff.CodeMismatch: another pair of engines may fit.
type Mismatch struct {
	Field string // for example "dtype of cache kv"
	P, D  string
}

func (m *Mismatch) Error() string {
	return fmt.Sprintf("%s: %s is %s at P, %s at D", handoff.CodeMismatch, m.Field, m.P, m.D)
}

// Unwrap gives the typed refusal, so that handoff.CodeOf knows it.
func (m *Mismatch) Unwrap() error {
	return handoff.Errorf(handoff.CodeMismatch, "%s is %s at P, %s at D", m.Field, m.P, m.D)
}

// Compatible says whether a piece of p is a piece of d, byte for byte. The error
// is nil, a *Mismatch, or the refusal of a malformed layout.
func Compatible(p, d Layout) error {
	if err := p.Validate(); err != nil {
		return err
	}
	if err := d.Validate(); err != nil {
		return err
	}
	a, b := p.fields(), d.fields()
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			if a[i].name != b[i].name { // lists of caches or items of different length or kind
				return &Mismatch{"the list of caches and items", a[i].name, b[i].name}
			}
			return &Mismatch{a[i].name, a[i].value, b[i].value}
		}
	}
	if len(a) != len(b) {
		return &Mismatch{"the number of caches and items", fmt.Sprint(len(p.Caches) + len(p.Items)), fmt.Sprint(len(d.Caches) + len(d.Items))}
	}
	return nil
}

type field struct{ name, value string }

// fields lists everything that two layouts must agree on, in one order.
func (l Layout) fields() []field {
	out := []field{{"block tokens", fmt.Sprint(l.BlockTokens)}, {"tensor parallelism", fmt.Sprint(l.Parallel)}}
	for i, c := range l.Caches {
		of := fmt.Sprintf(" of cache %d", i)
		out = append(out, field{"name" + of, c.Name}, field{"dtype" + of, string(c.DType)}, field{"layers" + of, fmt.Sprint(c.Layers)},
			field{"kv heads" + of, fmt.Sprint(c.KVHeads)}, field{"head dimension" + of, fmt.Sprint(c.HeadDim)},
			field{"packing" + of, string(c.Packing)}, field{"order" + of, string(c.Order)},
			field{"interior" + of, c.Interior}, field{"window" + of, fmt.Sprint(c.Window)})
	}
	for i, it := range l.Items {
		of := fmt.Sprintf(" of item %d", i)
		out = append(out, field{"class" + of, it.Class}, field{"bytes" + of, fmt.Sprint(it.Bytes)})
	}
	return out
}

// Fingerprint is the SHA-256 of the layout's canonical encoding: each field with
// its name, every string with its length before it. Equal fingerprints are equal
// layouts; a shape carries it, so a mismatch is refused before the first byte.
func (l Layout) Fingerprint() handoff.Digest {
	b := []byte("surehand layout v1\x00")
	str := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	for _, f := range l.fields() {
		str(f.name)
		str(f.value)
	}
	return handoff.Digest(sha256.Sum256(b))
}
