package vllm

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
)

func TestOnlyTheEditedFieldsChange(t *testing.T) {
	const raw = " { \"model\" : \"m\" ,\n\"n\":1.0, \"prompt\":\"é\\u00e9\" , \"last\" : {\"x\": [ ] } } "
	b, err := ParseBody([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		edits []edit
		want  string
	}{
		{nil, "{\"model\" : \"m\",\"n\":1.0,\"prompt\":\"é\\u00e9\",\"last\" : {\"x\": [ ] }}"},
		{[]edit{{"n", ""}, {"prompt", "[1]"}, {"added", "true"}}, "{\"model\" : \"m\",\"prompt\":[1],\"last\" : {\"x\": [ ] },\"added\":true}"},
		{[]edit{{"model", ""}, {"absent", ""}}, "{\"n\":1.0,\"prompt\":\"é\\u00e9\",\"last\" : {\"x\": [ ] }}"},
	} {
		if got := string(b.with(c.edits...)); got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
	empty, err := ParseBody([]byte("{}"))
	if err != nil || string(empty.with(edit{"a", "1"})) != `{"a":1}` {
		t.Error(err)
	}
}

func TestABodyThatTwoReadersCouldReadDifferentlyIsRefused(t *testing.T) {
	for _, raw := range []string{``, `[]`, `{"a":1}{}`, `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"a":}`, `{"a" 1}`, `{"a":1`, `{"a":NaN}`} {
		if _, err := ParseBody([]byte(raw)); handoff.CodeOf(err) != handoff.CodeInvalid {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func TestOneHandoffIsOneSequence(t *testing.T) {
	for raw, want := range map[string]handoff.Code{
		`{"model":"m","prompt":"a"}`:                                    handoff.CodeNone,
		`{"model":"m","prompt":["a"],"n":1}`:                            handoff.CodeNone,
		`{"model":"m","prompt":[1,2,3]}`:                                handoff.CodeNone,
		`{"model":"m","prompt":["a","b"]}`:                              handoff.CodeInvalid,
		`{"model":"m","prompt":[[1],[2]]}`:                              handoff.CodeInvalid,
		`{"model":"m","prompt":"a","n":2}`:                              handoff.CodeInvalid,
		`{"model":"m","prompt":"a","best_of":2}`:                        handoff.CodeInvalid,
		`{"model":"m","prompt":"a","use_beam_search":true}`:             handoff.CodeInvalid,
		`{"model":"m","prompt":"a","kv_transfer_params":{"do_x":true}}`: handoff.CodeDenied,
		`{"model":"m","prompt":"a","max_tokens":-1}`:                    handoff.CodeInvalid,
		`{"prompt":"a"}`:                                                handoff.CodeInvalid,
		`{"model":"m","stream":"yes"}`:                                  handoff.CodeInvalid,
	} {
		if _, err := ParseRequest(PathCompletions, []byte(raw)); handoff.CodeOf(err) != want {
			t.Errorf("%s: %v", raw, err)
		}
	}
	if _, err := ParseRequest("/v1/embeddings", []byte(`{"model":"m"}`)); handoff.CodeOf(err) != handoff.CodeInvalid {
		t.Error(err)
	}
}

func FuzzSplicedBodiesMeanTheSame(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1}`, ` {"a" : "x\"}," , "b":[{}],"c":null}`, `{"a":1,"a":2}`, `{"\u0061":1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		b, err := ParseBody(raw)
		if err != nil {
			return
		}
		var before, after map[string]any
		if err := json.Unmarshal(raw, &before); err != nil {
			t.Fatalf("took %q: %v", raw, err)
		}
		if err := json.Unmarshal(b.with(edit{"zz", "7"}), &after); err != nil {
			t.Fatalf("%q became %q: %v", raw, b.with(edit{"zz", "7"}), err)
		}
		before["zz"] = 7.0
		if !reflect.DeepEqual(before, after) {
			t.Errorf("%q became %q", raw, b.with(edit{"zz", "7"}))
		}
	})
}

func FuzzEventsAreCutWhereTheyEnd(f *testing.F) {
	f.Add([]byte("data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"), uint8(3))
	f.Add([]byte("data: {\"error\":{\"code\":\"503\"}}\r\n\r\nx"), uint8(1))
	f.Fuzz(func(t *testing.T, stream []byte, step uint8) {
		a := &Answer{ctx: t.Context(), body: &dripping{stream, int(step)%7 + 1}, stream: true, buf: make([]byte, 0, 16)}
		var got []byte
		for {
			p, err := a.Next()
			if err != nil {
				break
			}
			if len(p.Bytes) == 0 {
				t.Fatal("an empty part")
			}
			got = append(got, p.Bytes...)
		}
		if !bytes.HasPrefix(stream, got) {
			t.Errorf("gave %q of %q", got, stream)
		}
	})
}

// dripping gives its bytes a few at a time.
type dripping struct {
	left []byte
	step int
}

func (d *dripping) Read(b []byte) (int, error) {
	if len(d.left) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), d.step)], d.left)
	d.left = d.left[n:]
	return n, nil
}

func (d *dripping) Close() error { return nil }
