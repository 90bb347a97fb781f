// Package settings holds what the embedded Temporal server can be told, and
// refuses what would be unsafe before anything is opened or started.
package settings

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"
)

// ErrNotLoopback refuses an address that other machines could reach: neither
// the frontend nor the UI asks its caller who it is.
var ErrNotLoopback = errors.New("not a loopback address")

const (
	// DefaultListen is the address every Temporal client tries first.
	DefaultListen = "127.0.0.1:7233"
	// DefaultUI is where `temporal server start-dev` puts its UI.
	DefaultUI = "127.0.0.1:8233"
	// DefaultNamespace is the namespace clients use when told nothing.
	DefaultNamespace = "default"
	// DefaultRetention keeps a closed handoff's history long enough to look
	// at, and the file small: a history is about 24 KB.
	DefaultRetention = time.Hour
	// MinRetention is the least the server itself accepts in an update.
	MinRetention = time.Hour
	// MaxNamespaces bounds how many namespaces one command line can create.
	MaxNamespaces = 32
	// DefaultShards of a new database. Each serialises its own writes; each also
	// costs a little when nothing happens.
	DefaultShards = 64
	// MaxShards is the most that Temporal's own guidance knows a use for.
	MaxShards = 16384
)

// Settings is everything the embedded server is started with.
type Settings struct {
	DataDir          string // of SQLite files; empty with a Store
	Store            string // URL of a PostgreSQL database in their place; may hold a password
	Shards           int    // history shards of a new Store; 0: the store's own, or its default
	Frontend         netip.AddrPort
	UI               netip.AddrPort // the zero value: no UI
	UICodec          string         // URL of a codec server that the UI's pages ask; empty: none
	Metrics          netip.AddrPort // the zero value: no metrics
	Namespaces       []string
	Retention        time.Duration
	SearchAttributes SearchAttributes
	LogLevel         string
}

// Check refuses settings that no server should start with.
func (s Settings) Check() error {
	switch {
	case s.DataDir == "" && s.Store == "":
		return errors.New("--data is missing: name a directory for the histories, for example --data ./temporal-data, or a PostgreSQL database with --store")
	case s.DataDir != "" && s.Store != "":
		return errors.New("--data and --store are both given: histories are kept in one place")
	case s.Shards < 0 || s.Shards > MaxShards:
		return fmt.Errorf("--shards %d is not between 1 and %d", s.Shards, MaxShards)
	case s.Shards > 0 && s.Store == "":
		return errors.New("--shards needs --store: SQLite has a single writer, and so one shard")
	}
	if !s.Frontend.IsValid() {
		return errors.New("--listen is missing: name a loopback address, for example --listen " + DefaultListen)
	}
	if len(s.Namespaces) == 0 || len(s.Namespaces) > MaxNamespaces {
		return fmt.Errorf("give between 1 and %d namespaces, not %d", MaxNamespaces, len(s.Namespaces))
	}
	for _, name := range s.Namespaces {
		if name == "" || name == "temporal-system" {
			return fmt.Errorf("%q cannot be a namespace of yours", name)
		}
	}
	if s.Retention < MinRetention {
		return fmt.Errorf("--retention %s is below the server's minimum of %s", s.Retention, MinRetention)
	}
	switch s.LogLevel {
	case "debug", "info", "warn", "error":
		return nil
	}
	return fmt.Errorf("--log-level %q is none of debug, info, warn, error", s.LogLevel)
}

// Loopback parses host:port and refuses all but this machine's own loopback.
// An empty text is the zero address. Port 0 asks for a free port.
func Loopback(flag, text string) (netip.AddrPort, error) {
	if text == "" {
		return netip.AddrPort{}, nil
	}
	host, portText, err := net.SplitHostPort(text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%s %q is not host:port: %w", flag, text, err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%s %q: the port is no number from 0 to 65535", flag, text)
	}
	if host == "localhost" {
		host = "127.0.0.1" // never by a resolver, which could say anything
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%s %q: give an IP address or localhost: %w", flag, text, ErrNotLoopback)
	}
	if !address.IsLoopback() || address.Zone() != "" {
		return netip.AddrPort{}, fmt.Errorf("%s %q: this server asks nobody who they are, so it listens on 127.0.0.0/8 or [::1] only; "+
			"for other machines run a real Temporal cluster with TLS: %w", flag, text, ErrNotLoopback)
	}
	return netip.AddrPortFrom(address.Unmap(), uint16(port)), nil
}
