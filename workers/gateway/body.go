package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"unicode/utf8"

	"github.com/surehand/surehand/contracts/handoff"
)

// readBody reads a request's JSON whole, which also lets the server notice a
// client that leaves later.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	// A web page can post other types to a loopback port without being asked.
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return nil, &refusal{cause: handoff.Errorf(handoff.CodeInvalid, "send Content-Type: application/json"), status: http.StatusUnsupportedMediaType}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBodyBytes))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, handoff.Errorf(handoff.CodeTooLarge, "the body is larger than %d bytes", MaxBodyBytes)
	}
	if err != nil {
		return nil, &refusal{cause: handoff.Errorf(handoff.CodeInvalid, "the body did not arrive whole"), status: http.StatusRequestTimeout}
	}
	return body, nil
}

// parse reads a body field by field. An unknown field is refused: it may well
// have been meant to change the answer.
func parse(kind string, body []byte) (*ask, error) {
	if !utf8.Valid(body) {
		return nil, refuse("", "the body is not valid UTF-8")
	}
	var given map[string]json.RawMessage
	decoder := json.NewDecoder(bytes.NewReader(body))
	if err := decoder.Decode(&given); err != nil || given == nil {
		return nil, refuse("", "the body is not a JSON object")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, refuse("", "something follows the JSON object")
	}
	a := newAsk(kind)
	for _, name := range slices.Sorted(maps.Keys(given)) { // one order, so one error
		value := given[name]
		field, known := fieldsOf(kind)[name]
		if !known || field.only != "" && field.only != kind {
			return nil, refuse(name, "%q is not a field of this request", clip(name))
		}
		if isNull(value) {
			continue
		}
		if err := field.read(a, value); err != nil {
			var r *refusal
			if errors.As(err, &r) {
				return nil, err
			}
			return nil, refuse(name, "%s: %s", name, err)
		}
	}
	a.instruct()
	if a.usage && !a.stream {
		return nil, refuse("stream_options", "stream_options is for streams; set stream to true")
	}
	return a, nil
}

// clip keeps a client's own text in an error short.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	for i := range s {
		if i > most {
			return s[:i] + "…"
		}
	}
	return s
}
