package main

// excuses say why a mutant that survives is no gap: the line is a second lock,
// a bound that nothing can reach, or changes only what people read.
var excuses = map[string]string{
	"contracts/handoff/fencing.go: c.end(Outcome{Attempt: c.plan.Attempt, Code: CodeCancelled}) => ":                             "a second lock: Cancel decides the outcome at once, so no fence goes on behind it",
	"contracts/handoff/fencing.go: c.end(Outcome{Attempt: c.plan.Attempt, Code: CodeCancelled}) =>  #2":                          "a second lock: as above, for a plan that comes after the cancel",
	"contracts/handoff/coordinator.go: c.failure, c.committed, c.awaited = nil, false, false => ":                                "each fence sets them before it reads them; cleared, so that the explorer meets one state and not several",
	"contracts/handoff/lease.go: h[i].end < h[j].end => h[i].end <= h[j].end":                                                    "which of two leases that end at one instant comes first is nobody's promise",
	"contracts/handoff/ending.go: c.cancelled = true => ":                                                                        "a second lock: Cancel decides the outcome at once, which every later step looks at first",
	"contracts/handoff/ending.go: c.settle() => ":                                                                                "a second lock: the reader's word leads to another plan or to an undo that is awaited, so nothing is settled yet",
	"transferd/fence/engine.go: c.now() > c.cfg.Lease => c.now() >= c.cfg.Lease":                                                 "a clock that reads the very nanosecond of the lease's end",
	"transferd/fence/landing.go: at < length => at <= length":                                                                    "one stretch of no bytes more, whose checksum is the one before",
	"transferd/fence/engine.go: delete(c.leaving, e.ID) => ":                                                                     "a count of zero reads as none; the entry is taken out for tidiness",
	"transferd/fence/source.go: delete(c.arrivals, l.attempt) => ":                                                               "a second lock: whoever waits takes itself off, the last one the entry",
	"transferd/fence/source.go: delete(c.arrivals, a) => ":                                                                       "a second lock: as above, for a tombstone",
	"transferd/fence/reading.go: c.unwait(a) => ":                                                                                "a second lock: a source that opens takes the whole entry out",
	"contracts/handoff/fencing.go: c.next() => ":                                                                                 "runs only with its rule left out, which is found a step later without it",
	"contracts/handoff/fencing.go: c.next() =>  #4":                                                                              "runs only with its rule left out: the explorer's whole list of rules (explore -mutants) needs it to find anything",
	`transferd/fence/target.go: c.emit(Event{Machine: "engine", Name: "free", To: err.Error(), Code: handoff.CodeInternal}) => `: "what the table cannot refuse: drained was checked",
	"transferd/fence/engine.go: c.leaving[e.ID] == 0 => !(c.leaving[e.ID] == 0)":                                                 "as for the entry itself: nobody attaches under the name while one is leaving, so the count is one or zero",
}
