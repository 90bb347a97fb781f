// Package dev runs a whole Surehand on one machine: Temporal with its UI, a
// store, prefill and decode engines each with its own transferd, and a gateway
// with a worker. Each is an operating-system process of its own, so that a
// kill -9 means something.
//
//	build.go    binaries that are not there yet are built, with progress
//	ports.go    free loopback ports, the same ones on each run if they are free
//	plan.go     which processes, with which arguments, after which others
//	child.go    one process: started, ready, ended
//	fleet.go    all of them: restarts, the drain in order, the kill
//	spawn.go    why children die with this process, however that dies
//
// It is no supervisor for production: it restarts what dies, on the same
// ports, and says so, because that is what a kill is to show.
package dev
