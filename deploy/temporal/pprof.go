package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"time"
)

const headerTimeout = 5 * time.Second

// servePprof answers with Go's profiles of this process until stop.
func servePprof(address netip.AddrPort) (stop func() error, err error) {
	if !address.IsValid() {
		return func() error { return nil }, nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout}
	listener, err := net.Listen("tcp", address.String())
	if err != nil {
		return nil, fmt.Errorf("listen for profiles: %w", err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	return func() error {
		err := server.Close()
		if end := <-served; !errors.Is(end, http.ErrServerClosed) {
			return errors.Join(err, end)
		}
		return err
	}, nil
}
