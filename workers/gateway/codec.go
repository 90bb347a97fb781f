package gateway

import (
	"net/http"

	"github.com/surehand/surehand/workers/access"
	"github.com/surehand/surehand/workers/payload"
)

// codec serves sealed payloads to operators, where this gateway has the keys.
func (g *Gateway) codec(mux *http.ServeMux) {
	if g.Codec == nil {
		return
	}
	s := payload.Server{Codec: g.Codec.Codec, Origin: g.Codec.Origin,
		Refuse: func(w http.ResponseWriter, err error) { asRefusal(err).write(w, "") },
		Operator: func(r *http.Request, authorization string) error {
			c := access.Credentials{Authorization: authorization}
			if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
				c.Peer = r.TLS.PeerCertificates[0]
			}
			_, err := g.authenticate(r.Context(), c, access.RoleOperator)
			return err
		}}
	s.Register(mux)
}
