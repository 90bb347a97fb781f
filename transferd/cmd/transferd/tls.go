package main

import (
	"errors"
	"fmt"

	"github.com/spf13/viper"

	"github.com/surehand/surehand/transferd/daemon"
	"github.com/surehand/surehand/transferd/identity"
)

// mutualTLS gives both sides their TLS, nothing when no file is named. Our own
// certificate must name this node: a daemon that every peer refuses does not start.
func mutualTLS(v *viper.Viper, cfg *daemon.Config) error {
	f := identity.Files{Cert: v.GetString("tls-cert"), Key: v.GetString("tls-key"), CA: v.GetString("tls-ca"), TrustDomain: v.GetString("trust-domain")}
	if f == (identity.Files{}) {
		return nil
	}
	if f.Cert == "" || f.Key == "" || f.CA == "" {
		return errors.New("--tls-cert, --tls-key and --tls-ca go together, and --trust-domain needs them")
	}
	own, err := identity.Open(f)
	if err != nil {
		return err
	}
	if err := own.Names(identity.Daemon, string(cfg.Node)); err != nil {
		return fmt.Errorf("--tls-cert: %w", err)
	}
	cfg.TLS, cfg.ControlTLS = own.TLS(identity.Daemon), own.TLS(identity.Orchestrator)
	cfg.MetricsTLS, err = identity.Listener(f, false, "h2", "http/1.1")
	return err
}
