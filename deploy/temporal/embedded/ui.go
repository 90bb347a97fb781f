package embedded

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	uiserver "github.com/temporalio/ui-server/v2/server"
	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	uioptions "github.com/temporalio/ui-server/v2/server/server_options"
)

// uiProbeTimeout bounds one try at the UI's page while it comes up.
const uiProbeTimeout = time.Second

// ui is the web UI, which is a client of the frontend like any other.
type ui struct {
	server  *uiserver.Server
	address netip.AddrPort
	ended   chan struct{}
}

// startUI returns when the page can be read. The UI's own server ends the
// process when it cannot listen, so the port is tried first.
func startUI(ctx context.Context, address, frontend netip.AddrPort, namespace, codec string) (*ui, error) {
	listener, err := net.Listen("tcp", address.String())
	if err != nil {
		return nil, fmt.Errorf("listen on %s for the UI (--ui names another address, --ui '' none): %w", address, err)
	}
	address = netip.AddrPortFrom(address.Addr(), uint16(listener.Addr().(*net.TCPAddr).Port))
	if err := listener.Close(); err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(address.String())
	if err != nil {
		return nil, err
	}
	if address.Addr().Is6() {
		host = "[" + host + "]" // the UI's server joins host and port as they are
	}
	u := &ui{address: address, ended: make(chan struct{})}
	u.server = uiserver.NewServer(uioptions.WithConfigProvider(&uiconfig.Config{
		Host:                host,
		Port:                int(address.Port()),
		TemporalGRPCAddress: frontend.String(),
		EnableUI:            true,
		DefaultNamespace:    namespace,
		DisableNewsFetch:    true, // nothing here calls home
		HideLogs:            true,
		Codec:               uiconfig.Codec{Endpoint: codec, IncludeCredentials: codec != ""},
		CORS:                uiconfig.CORS{CookieInsecure: true}, // plain HTTP on loopback
	}))
	go func() {
		defer close(u.ended)
		_ = u.server.Start() // always nil: it ends the process on any error
	}()
	if err := u.waitPage(ctx); err != nil {
		u.stop()
		return nil, err
	}
	return u, nil
}

// waitPage returns when the page answers 200.
func (u *ui) waitPage(ctx context.Context) error {
	client := &http.Client{Timeout: uiProbeTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	return until(ctx, "the UI", func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.url(), nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		if err := response.Body.Close(); err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", response.StatusCode)
		}
		return nil
	})
}

func (u *ui) url() string { return "http://" + u.address.String() + "/" }

func (u *ui) stop() {
	u.server.Stop()
	<-u.ended
}
