//go:build e2e

package explore

import "testing"

func brief() bool { return testing.Short() }
