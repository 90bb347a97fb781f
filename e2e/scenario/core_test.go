//go:build !e2e

package scenario

// patient: wait for what takes minutes to build.
const patient = false
