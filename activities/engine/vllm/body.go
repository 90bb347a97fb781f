package vllm

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/surehand/surehand/contracts/handoff"
)

// MaxFields bounds the top-level fields of a body.
const MaxFields = 256

// Body is a JSON object whose top-level fields can be replaced while every other
// byte stays as the client wrote it. It holds the client's bytes: never log it.
type Body struct {
	fields []field
}

type field struct {
	name  string
	whole []byte // key, colon and value, as written
	value json.RawMessage
}

// ParseBody reads the top level of a JSON object. A field that stands twice is
// refused: the two readers of the request might take different ones.
func ParseBody(raw []byte) (Body, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return Body{}, handoff.Errorf(handoff.CodeInvalid, "the body is not a JSON object")
	}
	var b Body
	seen := map[string]bool{}
	start := d.InputOffset()
	for d.More() {
		f, err := nextField(d, raw, start)
		if err != nil {
			return Body{}, err
		}
		if seen[f.name] {
			return Body{}, handoff.Errorf(handoff.CodeInvalid, "a field of the body stands twice")
		}
		if len(b.fields) == MaxFields {
			return Body{}, handoff.Errorf(handoff.CodeTooLarge, "the body has more than %d fields", MaxFields)
		}
		seen[f.name] = true
		b.fields = append(b.fields, f)
		start = d.InputOffset()
	}
	if _, err := d.Token(); err != nil {
		return Body{}, handoff.Errorf(handoff.CodeInvalid, "the body is not a JSON object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Body{}, handoff.Errorf(handoff.CodeInvalid, "something follows the JSON object")
	}
	return b, nil
}

func nextField(d *json.Decoder, raw []byte, start int64) (field, error) {
	malformed := handoff.Errorf(handoff.CodeInvalid, "the body is not valid JSON")
	key, err := d.Token()
	name, ok := key.(string)
	if err != nil || !ok {
		return field{}, malformed
	}
	var v json.RawMessage
	if err := d.Decode(&v); err != nil {
		return field{}, malformed
	}
	whole := raw[start:d.InputOffset()]
	return field{name: name, whole: bytes.TrimLeft(whole, ", \t\r\n"), value: v}, nil
}

// Get gives a field's value as written; nil when it is absent or null.
func (b Body) Get(name string) json.RawMessage {
	for _, f := range b.fields {
		if f.name == name && string(f.value) != "null" {
			return f.value
		}
	}
	return nil
}

// has says whether the field stands in the body at all.
func (b Body) has(name string) bool {
	for _, f := range b.fields {
		if f.name == name {
			return true
		}
	}
	return false
}

// edit replaces a field, adds it at the end, or, with no value, drops it.
type edit struct {
	name  string
	value string
}

// with writes the body with its edits.
func (b Body) with(edits ...edit) []byte {
	out := []byte{'{'}
	add := func(whole []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, whole...)
	}
	for _, f := range b.fields {
		if e := find(edits, f.name); e == nil {
			add(f.whole)
		} else if e.value != "" {
			add(e.text())
		}
	}
	for i := range edits {
		if e := &edits[i]; e.value != "" && !b.has(e.name) {
			add(e.text())
		}
	}
	return append(out, '}')
}

func find(edits []edit, name string) *edit {
	for i := range edits {
		if edits[i].name == name {
			return &edits[i]
		}
	}
	return nil
}

// text is the field as JSON; names of edits are ours and need no escape.
func (e *edit) text() []byte { return []byte(`"` + e.name + `":` + e.value) }

// Bytes writes the body without any edit.
func (b Body) Bytes() []byte { return b.with() }
