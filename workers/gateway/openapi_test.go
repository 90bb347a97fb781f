package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

// described is docs/openapi.yaml, read and checked once.
var described = sync.OnceValues(func() (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromFile("../../docs/openapi.yaml")
	if err != nil {
		return nil, err
	}
	doc.Servers = nil // whatever the test's port is
	return doc, doc.Validate(context.Background())
})

var roads = sync.OnceValues(func() (routers.Router, error) {
	doc, err := described()
	if err != nil {
		return nil, err
	}
	return gorillamux.NewRouter(doc)
})

// asDescribed holds every JSON answer that a test gets against the document.
type asDescribed struct {
	t    *testing.T
	next http.RoundTripper
}

func (a asDescribed) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := a.next.RoundTrip(r)
	if err != nil || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") || !strings.HasPrefix(r.URL.Path, "/v1/") {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if err := checkAnswer(r, resp, body); err != nil {
		a.t.Errorf("%s %s answers otherwise than docs/openapi.yaml says: %s\n%s", r.Method, r.URL.Path, err, body)
	}
	return resp, nil
}

func checkAnswer(r *http.Request, resp *http.Response, body []byte) error {
	router, err := roads()
	if err != nil {
		return err
	}
	route, params, err := router.FindRoute(r)
	if err != nil {
		if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed {
			return nil // neither here nor there
		}
		return err
	}
	in := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route},
		Status:                 resp.StatusCode, Header: resp.Header, Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	}
	in.SetBodyBytes(body)
	return openapi3filter.ValidateResponse(r.Context(), in)
}

// The fields of each request are those that the code reads, and no others.
func TestOpenAPINamesTheFieldsThatAreRead(t *testing.T) {
	doc, err := described()
	if err != nil {
		t.Fatal(err)
	}
	for name, kind := range map[string]string{"CompletionRequest": kindText, "ChatRequest": kindChat, "ResponseRequest": kindResponse} {
		var read []string
		for field, f := range fieldsOf(kind) {
			if f.only == "" || f.only == kind {
				read = append(read, field)
			}
		}
		slices.Sort(read)
		if said := slices.Sorted(maps.Keys(doc.Components.Schemas[name].Value.Properties)); !slices.Equal(said, read) {
			t.Errorf("%s: the document says %v, the code reads %v", name, said, read)
		}
	}
}

// The check is checked: an answer that the document does not allow is found.
func TestOpenAPIFindsAnotherAnswer(t *testing.T) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/v1/models", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}}
	for body, good := range map[string]bool{`{"object":"list","data":[]}`: true, `{"object":"list"}`: false, `{"object":"list","data":[],"more":1}`: false} {
		if err := checkAnswer(r, resp, []byte(body)); (err == nil) != good {
			t.Errorf("%s: %v", body, err)
		}
	}
}
