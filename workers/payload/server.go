package payload

import (
	_ "embed"
	"net/http"
	"net/url"
	"strings"

	"go.temporal.io/sdk/converter"

	"github.com/surehand/surehand/contracts/handoff"
)

const (
	// Path is where a gateway serves the codec: what Temporal's UI is told as its
	// codec endpoint, behind the gateway's address.
	Path = "/codec"
	// MaxBodyBytes bounds what one call opens: a page of a history.
	MaxBodyBytes = 8 << 20

	pathDecode = Path + "/decode"
	pathEnter  = Path + "/"
	cookieName = "surehand_codec"
	maxKey     = 4096 // bytes of a credential
)

// Server opens payloads for operators. It seals for nobody: workers do that.
type Server struct {
	Codec *Codec
	// Origin is the UI's, such as http://127.0.0.1:8233: the only one whose pages
	// may ask.
	Origin string
	// Operator refuses a request whose credentials are none of an operator's.
	Operator func(r *http.Request, authorization string) error
	Refuse   func(http.ResponseWriter, error)
}

// Check says what is wrong with an origin.
func Check(origin string) error {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.User != nil {
		return handoff.Errorf(handoff.CodeInvalid, "the origin of Temporal's UI is %q, want a scheme, a host and a port", origin)
	}
	return nil
}

// Register adds the server's paths. They ask who calls by themselves: a browser
// brings a cookie, or the UI its token.
func (s *Server) Register(mux *http.ServeMux) {
	open := converter.NewPayloadCodecHTTPHandler(s.Codec)
	s.Origin = strings.TrimSuffix(s.Origin, "/")
	mux.HandleFunc("OPTIONS "+pathDecode, func(w http.ResponseWriter, r *http.Request) {
		if s.cors(w, r) {
			w.WriteHeader(http.StatusNoContent)
		}
	})
	mux.HandleFunc("POST "+pathDecode, func(w http.ResponseWriter, r *http.Request) {
		if !s.cors(w, r) {
			return
		}
		if err := s.Operator(r, authorization(r)); err != nil {
			s.Refuse(w, err)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		r.Body = http.MaxBytesReader(w, r.Body, MaxBodyBytes)
		open.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET "+pathEnter+"{$}", s.page)
	mux.HandleFunc("POST "+pathEnter+"{$}", s.enter)
}

// cors lets the UI's pages ask, and no other's. A caller that is no page brings
// no origin; it needs its credentials all the same.
func (s *Server) cors(w http.ResponseWriter, r *http.Request) bool {
	h := w.Header()
	h.Set("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	if origin != s.Origin {
		s.Refuse(w, handoff.Errorf(handoff.CodeDenied, "pages of another origin than Temporal's UI may not ask"))
		return false
	}
	h.Set("Access-Control-Allow-Origin", s.Origin)
	h.Set("Access-Control-Allow-Credentials", "true")
	h.Set("Access-Control-Allow-Methods", "POST, OPTIONS")
	h.Set("Access-Control-Allow-Headers", "Content-Type, X-Namespace, Authorization, Authorization-Extras")
	h.Set("Access-Control-Max-Age", "600")
	return true
}

// authorization is the header, or what the browser keeps of a key.
func authorization(r *http.Request) string {
	if a := r.Header.Get("Authorization"); a != "" {
		return a
	}
	if c, err := r.Cookie(cookieName); err == nil && c.Value != "" {
		return "Bearer " + c.Value
	}
	return ""
}

//go:embed enter.html
var enterPage []byte

func (s *Server) page(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self' "+s.Origin+"; frame-ancestors 'none'") // the form's answer leads there
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write(enterPage) // a client that left is told nothing
}

// enter keeps an operator's key in the browser, out of reach of scripts and of
// other sites, until it is closed. Each call looks at the key anew, so one that
// is taken out of the access file opens nothing any more.
func (s *Server) enter(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxKey)
	if o := r.Header.Get("Origin"); o != "" && !sameHost(o, r.Host) {
		s.Refuse(w, handoff.Errorf(handoff.CodeDenied, "this form is for this gateway's own page"))
		return
	}
	key := strings.TrimSpace(r.PostFormValue("key"))
	if err := s.Operator(r, "Bearer "+key); err != nil {
		s.Refuse(w, err)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: key, Path: Path, HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, s.Origin, http.StatusSeeOther)
}

func sameHost(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host == host
}
