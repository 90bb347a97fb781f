//go:build e2e

package scenario

const patient = true
