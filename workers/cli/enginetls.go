package cli

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/spf13/pflag"

	"github.com/surehand/surehand/transferd/identity"
)

// engineTLS is how an engine's gRPC is reached from other hosts: by mutual TLS,
// which lets in gateways and workers only.
type engineTLS struct {
	files     identity.Files
	advertise string
}

func (e *engineTLS) flags(f *pflag.FlagSet) {
	f.StringVar(&e.files.Cert, "tls-cert", "", "PEM file of this engine's certificate, which names the host of --advertise; read again when it changed, as the next two (default: clear text, on loopback only)")
	f.StringVar(&e.files.Key, "tls-key", "", "PEM file of its key")
	f.StringVar(&e.files.CA, "tls-client-ca", "", "PEM file of the CA whose certificates gateways and workers must show")
	f.StringVar(&e.files.TrustDomain, "trust-domain", "", "SPIFFE trust domain in which those must be of orchestrators (default: any certificate of the CA)")
	f.StringVar(&e.advertise, "advertise", "", "gRPC address at which gateways and workers reach this engine (default: the one listened on)")
}

// config is nil without files: clear text, which is refused off loopback.
func (e *engineTLS) config(listen string) (*tls.Config, error) {
	if e.files != (identity.Files{}) && (e.files.Cert == "" || e.files.Key == "" || e.files.CA == "") {
		return nil, errors.New("--tls-cert, --tls-key and --tls-client-ca go together, and --trust-domain needs them")
	}
	if host, _, err := net.SplitHostPort(listen); err == nil && e.advertise == "" {
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			return nil, fmt.Errorf("--listen %s is no address at which others reach this engine: give --advertise", listen)
		}
	}
	if e.files == (identity.Files{}) {
		return nil, nil
	}
	own, err := identity.Open(e.files)
	if err != nil {
		return nil, err
	}
	return own.TLS(identity.Orchestrator), nil
}
