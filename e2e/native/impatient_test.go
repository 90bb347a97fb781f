//go:build !e2e

package native

const patient = false
