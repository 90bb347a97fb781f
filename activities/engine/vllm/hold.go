package vllm

import (
	"context"
	"net"
)

// Hold keeps a connection on which nothing is asked, and returns when the server
// closes it, refuses it, or ctx ends. A process that dies closes its sockets at
// that moment, long before anybody looks at it again. Nothing is proved by it:
// servers also close what idles, so that the caller has to look.
func (s *Server) Hold(ctx context.Context) {
	port := s.base.Port()
	if port == "" {
		port = s.base.Scheme // a name that the dialer knows
	}
	c, err := s.config.dialer().DialContext(ctx, "tcp", net.JoinHostPort(s.base.Hostname(), port))
	if err != nil {
		return
	}
	release := context.AfterFunc(ctx, func() { _ = c.Close() }) // which ends the read
	defer release()
	defer c.Close()
	_, _ = c.Read(make([]byte, 1)) // whatever comes, it is time to look
}
