package main

// suite is a test binary and how it is run.
type suite struct{ pkg, args string }

// target is a part of the code and the tests that prove it.
type target struct {
	files []string
	tests []suite
}

var simulated = suite{"./e2e/sim", "-test.run=Museum|Regressions|EveryFault|Whole"}

var explored = suite{"./contracts/handoff/explore", "-test.short -test.run=EachRule|EveryRule|SharedBlocks"}

// targets are the fence, the ledger, undo and leases.
var targets = []target{
	{[]string{"transferd/fence/target.go", "transferd/fence/source.go", "transferd/fence/control.go", "transferd/fence/engine.go", "transferd/fence/landing.go", "transferd/fence/reading.go"},
		[]suite{{"./transferd/fence", ""}, simulated, {"./transferd/daemon", "-test.short"}}},
	{[]string{"contracts/handoff/targets.go", "contracts/handoff/targets_guard.go", "contracts/handoff/sources.go", "contracts/handoff/sources_guard.go", "contracts/handoff/coordinator.go", "contracts/handoff/step.go", "contracts/handoff/fencing.go", "contracts/handoff/ending.go",
		"contracts/handoff/readers.go", "contracts/handoff/lease.go", "contracts/handoff/capacity.go", "contracts/handoff/pins.go"},
		[]suite{{"./contracts/handoff", ""}, {"./transferd/fence", ""}, explored, simulated}},
	{[]string{"activities/ledger/memledger/promises.go", "activities/ledger/memledger/claims.go"},
		[]suite{{"./activities/ledger/memledger", ""}, {"./e2e/check", ""}, simulated}},
	{[]string{"activities/undo.go", "activities/renew.go", "activities/attempts.go", "activities/commit.go", "activities/reader.go"},
		[]suite{{"./activities", ""}, {"./workflows", "-test.short"}, simulated}},
}
