package telemetry

import (
	"net/http"
	"net/http/pprof"
	"time"
)

// profileTimeout bounds one profile's taking and sending.
const profileTimeout = 10 * time.Minute

// Pprof serves Go's profiles of this process on a loopback address until Close.
func Pprof(address string) (*Server, error) {
	listener, err := listen(address, nil)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return serveOn(listener, mux, profileTimeout), nil
}
