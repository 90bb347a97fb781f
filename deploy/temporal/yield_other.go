//go:build !linux

package main

// yield needs Linux: elsewhere the server takes its turn like everybody.
func yield(int) error { return nil }
