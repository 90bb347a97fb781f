package cli

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/surehand/surehand/workers/access"
)

// fleetKeyMost bounds the file of a fleet's key.
const fleetKeyMost = 4 << 10

// errOpen refuses to let everybody in where others can reach us.
var errOpen = errors.New("not a loopback address: without --access every caller is believed, which is for loopback only")

// callers is who may call this gateway.
func (s *serveFlags) callers(log *slog.Logger) (access.Authenticator, error) {
	if s.access != "" {
		f, err := access.Open(s.access, log)
		if err != nil {
			return nil, err
		}
		if !f.Fleet() {
			log.Warn("the access file names no fleet: other gateways and workers cannot reach this gateway's readers")
		}
		return f, nil
	}
	for _, address := range []string{s.listen.HTTP, s.listen.GRPC} {
		if address == "" {
			continue
		}
		at, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			return nil, err
		}
		if !at.IP.IsLoopback() {
			return nil, fmt.Errorf("listening on %s: %w", address, errOpen)
		}
	}
	return access.Everybody{}, nil
}

// accessMetrics tell whether the access file that lies there is in force.
type accessMetrics struct{ file *access.File } // nil: there is none

var (
	accessStale = gauge("surehand_access_file_stale", "1 while the access file is no good or away, and the last good one stays in force.")
	accessReads = prometheus.NewDesc("surehand_access_reads_total", "Changes of the access file that were read, by outcome: taken or refused.", []string{"outcome"}, nil)
)

func (m accessMetrics) Describe(c chan<- *prometheus.Desc) {
	c <- accessStale
	c <- accessReads
}

func (m accessMetrics) Collect(c chan<- prometheus.Metric) {
	var taken, refused uint64
	on := 0.0
	if m.file != nil {
		var stale bool
		if taken, refused, stale = m.file.Reads(); stale {
			on = 1
		}
	}
	c <- prometheus.MustNewConstMetric(accessStale, prometheus.GaugeValue, on)
	c <- prometheus.MustNewConstMetric(accessReads, prometheus.CounterValue, float64(taken), "taken")
	c <- prometheus.MustNewConstMetric(accessReads, prometheus.CounterValue, float64(refused), "refused")
}

// fleetKey reads the key that this process shows to other gateways.
func fleetKey(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("fleet key: %w", err)
	}
	key := string(bytes.TrimSpace(raw))
	if len(raw) > fleetKeyMost || key == "" || bytes.ContainsAny([]byte(key), " \t\r\n") {
		return "", fmt.Errorf("fleet key: %s is not one word", path)
	}
	return key, nil
}

func newKey() *cobra.Command {
	return &cobra.Command{
		Use: "key", Short: "Draw an API key and print it with the digest for the access file", Args: cobra.NoArgs, GroupID: groupClient,
		Example: "  surehand key   # the first line goes to the caller, the second into the access file",
		RunE: func(c *cobra.Command, _ []string) error {
			key := "sk-" + rand.Text() // 128 bits and more: nothing to guess, so a plain digest at rest is enough
			sum := access.Digest(key)
			_, err := fmt.Fprintf(c.OutOrStdout(), "%s\nsha256:%s\n", key, hex.EncodeToString(sum[:]))
			return err
		},
	}
}
