//go:build !e2e

package explore

// brief searches end within some thousand states.
func brief() bool { return true }
