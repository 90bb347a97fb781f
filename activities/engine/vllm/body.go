package vllm

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

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
// refused: the two readers of the request might take different ones. Prompts are
// long, so they are looked through once, by the JSON checker, and then skipped.
func ParseBody(raw []byte) (Body, error) {
	if !json.Valid(raw) {
		return Body{}, handoff.Errorf(handoff.CodeInvalid, "the body is not valid JSON")
	}
	at := blank(raw, 0)
	if raw[at] != '{' {
		return Body{}, handoff.Errorf(handoff.CodeInvalid, "the body is not a JSON object")
	}
	var b Body
	for at = blank(raw, at+1); raw[at] != '}'; {
		f, next, err := nextField(raw, at)
		if err != nil {
			return Body{}, err
		}
		if b.has(f.name) {
			return Body{}, handoff.Errorf(handoff.CodeInvalid, "a field of the body stands twice")
		}
		if len(b.fields) == MaxFields {
			return Body{}, handoff.Errorf(handoff.CodeTooLarge, "the body has more than %d fields", MaxFields)
		}
		b.fields = append(b.fields, f)
		if at = blank(raw, next); raw[at] == ',' {
			at = blank(raw, at+1)
		}
	}
	return b, nil
}

// nextField reads the field at a place of valid JSON; next is behind it.
func nextField(raw []byte, at int) (f field, next int, err error) {
	key := skip(raw, at)
	if err := json.Unmarshal(raw[at:key], &f.name); err != nil {
		return field{}, 0, handoff.Errorf(handoff.CodeInvalid, "the body is not valid JSON")
	}
	value := blank(raw, blank(raw, key)+1) // behind the colon
	next = skip(raw, value)
	f.whole, f.value = raw[at:next], raw[value:next]
	return f, next, nil
}

// blank is the first place from at on that is no white space.
func blank(raw []byte, at int) int {
	for at < len(raw) && (raw[at] == ' ' || raw[at] == '\t' || raw[at] == '\n' || raw[at] == '\r') {
		at++
	}
	return at
}

// skip is the place behind the value at a place of valid JSON.
func skip(raw []byte, at int) int {
	switch raw[at] {
	case '"':
		return quoted(raw, at)
	case '{', '[':
		for depth := 0; ; at++ {
			switch raw[at] {
			case '"':
				at = quoted(raw, at) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return at + 1
				}
			}
		}
	}
	for at < len(raw) && strings.IndexByte(",}] \t\r\n", raw[at]) < 0 {
		at++
	}
	return at
}

// quoted is the place behind the string that begins at a place.
func quoted(raw []byte, at int) int {
	for at++; ; {
		at += bytes.IndexAny(raw[at:], `"\\`)
		if raw[at] == '"' {
			return at + 1
		}
		at += 2
	}
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

// only drops every other field.
func (b Body) only(names ...string) (out Body) {
	for _, f := range b.fields {
		if slices.Contains(names, f.name) {
			out.fields = append(out.fields, f)
		}
	}
	return out
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
