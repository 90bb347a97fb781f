// Package fleettest is how tests come by the programs of a fleet.
package fleettest

import (
	"errors"
	"testing"

	"github.com/surehand/surehand/e2e/fleet"
)

// Programs gives what build gives. The test is skipped under -short, and where
// the embedded Temporal server is not built and build does not wait for one.
func Programs(t *testing.T, build func() (fleet.Programs, error)) fleet.Programs {
	t.Helper()
	if testing.Short() {
		t.Skip("real processes are not for -short")
	}
	p, err := build()
	if errors.Is(err, fleet.ErrNoTemporal) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Built are the programs that Build gives.
func Built(t *testing.T, patience bool) fleet.Programs {
	t.Helper()
	return Programs(t, func() (fleet.Programs, error) { return fleet.Build(t.Context(), patience) })
}
