package explore

// Where a search may begin.
var (
	validated = []actKind{actOpen, actPrefill, actPull}                                              // e1 may commit
	delivered = []actKind{actOpen, actPrefill, actPull, actMoved}                                    // and its Commit is out
	closed    = []actKind{actMoveFails, actAsked}                                                    // e1 is closed at TD, W0 may plan e2
	replanned = []actKind{actMoveFails, actAsked, actPlaced}                                         // and did
	taken     = []actKind{actOpen, actPrefill, actPull, actMoved, actCommit, actFault, actMoveFails} // e1 is visible, W1 took over and fences
)

// Scenarios are the searches with every rule in force. None may find anything.
var Scenarios = []Scenario{
	{Name: "no fault", Fine: true},
	{Name: "TD restart", Fine: true, Faults: RestartTD},
	{Name: "TP restart", Fine: true, Faults: RestartTP},
	{Name: "D host restart", Fine: true, Faults: RestartHost},
	{Name: "cancel", Fine: true, Faults: Cancel},
	{Name: "start unknown", Fine: true, Faults: StartUnknown},
	{Name: "preempt", Fine: true, Faults: Preempt},
	{Name: "corrupt, repost", Fine: true, Faults: Corrupt | Repost},
	{Name: "leases", Fine: true, Faults: LeaseP | LeaseD},
	{Name: "local, lease P", Fine: true, Local: true, Faults: LeaseP},
	{Name: "local, TP restart", Fine: true, Local: true, Faults: RestartTP},
	{Name: "local, preempt", Fine: true, Local: true, Faults: Preempt},
	{Name: "takeover", Fine: true, Faults: Takeover},
	{Name: "coarse: no fault"},
	{Name: "coarse: takeover", Faults: Takeover},
	{Name: "coarse: takeover, same D", Quick: true, SameD: true, Faults: Takeover},
	{Name: "coarse: takeover, slow answers", Quick: true, SlowAnswers: true, Faults: Takeover},
	{Name: "coarse: takeover, TD restart", Quick: true, Faults: Takeover | RestartTD},
	{Name: "coarse: takeover, D host restart", Quick: true, Faults: Takeover | RestartHost},
	{Name: "coarse: takeover, TP restart, lease D", Quick: true, Faults: Takeover | RestartTP | LeaseD},
	{Name: "coarse: takeover, decode lease", Quick: true, Faults: Takeover | LeaseDecode},
	{Name: "coarse: takeover, cancel", Quick: true, Faults: Takeover | Cancel},
	{Name: "coarse: TD restart, cancel", Quick: true, Faults: RestartTD | Cancel},
	{Name: "coarse: kill, takeover, leases", Quick: true, Faults: Kill | Takeover | LeaseD | LeaseP},
	{Name: "coarse: two gateways, one body", Quick: true, TwoGateways: true},
	{Name: "coarse: two gateways, two bodies", Quick: true, TwoGateways: true, TwoBodies: true},
	{Name: "coarse: two gateways, takeover", Quick: true, TwoGateways: true, Faults: Takeover},
	{Name: "coarse: reset", Quick: true, Faults: Reset},
	{Name: "coarse: detach, takeover", Quick: true, Detach: true, Faults: Takeover},
	{Name: "coarse: detach, D host restart", Quick: true, Detach: true, Faults: RestartHost},
	{Name: "coarse: terminate", Faults: Terminate},
	{Name: "reader: re-attach", Readers: true, Quick: true, Faults: Reattach},
	{Name: "reader: re-attach, slow answers", Readers: true, Quick: true, SlowAnswers: true, Faults: Reattach},
	{Name: "reader: re-attach, D host restart", Readers: true, Quick: true, Faults: Reattach | RestartHost},
	{Name: "reader: re-attach, cancel", Readers: true, Quick: true, Faults: Reattach | Cancel},
	{Name: "reader: re-attach, kill, takeover", Readers: true, Quick: true, Faults: Reattach | Kill | Takeover},
	{Name: "reader: gateway restart, takeover", Readers: true, Quick: true, Faults: RestartGW | Takeover},
	{Name: "reader: re-attach, gateway restart, takeover", Readers: true, Quick: true, Faults: Reattach | RestartGW | Takeover},
	{Name: "reader: re-attach, takeover", Readers: true, Quick: true, Faults: Reattach | Takeover},
}

// Pairs are the searches of two requests, each with two epochs, on two D and one
// P, each bounded so that it closes: one of the answers that a worker could have is
// lost, of both together, and each fault strikes each request once. Messages still
// come late, in any order, twice or never. Room makes them wait for each other's
// memory.
var Pairs = []Scenario{
	{Name: "both fenced", Quick: true, Quicker: true, Begin: closed, Bounded: true, Losses: 1},
	{Name: "both fenced, room for one", Quick: true, Quicker: true, Begin: closed, Room: 1, Bounded: true, Losses: 1},
	{Name: "both fenced, D host restart", Quick: true, Quicker: true, Begin: closed, Bounded: true, Losses: 1, Faults: RestartHost},
	{Name: "both fenced, TP restart", Quick: true, Quicker: true, Begin: closed, Bounded: true, Losses: 1, Faults: RestartTP},
	{Name: "both may commit", Quick: true, Quicker: true, Begin: validated, Bounded: true, Losses: 1},
	{Name: "both may commit, room for two, D host restart", Quick: true, Quicker: true, Begin: delivered, Room: 2, Bounded: true, Losses: 1, Faults: RestartHost},

	// From the first message on.
	{Name: "no fault", Quick: true, Quicker: true, Bounded: true, Losses: 1},
	{Name: "no fault, two losses", Quick: true, Quicker: true, Bounded: true, Losses: 2},
	{Name: "room for one", Quick: true, Quicker: true, Bounded: true, Losses: 1, Room: 1},
	{Name: "TD restart", Quick: true, Quicker: true, Bounded: true, Losses: 1, Faults: RestartTD},
	{Name: "D host restart", Quick: true, Quicker: true, Bounded: true, Losses: 1, Faults: RestartHost},
	{Name: "room for one, D host restart", Quick: true, Quicker: true, Bounded: true, Losses: 1, Room: 1, Faults: RestartHost},
	{Name: "TP restart", Quick: true, Quicker: true, Bounded: true, Losses: 1, Faults: RestartTP},
	{Name: "takeover", Quick: true, Quicker: true, Bounded: true, Losses: 1, Faults: Takeover},
	{Name: "gateway restart, takeover", Quick: true, Quicker: true, Bounded: true, Losses: 1, Faults: RestartGW | Takeover},
	{Name: "kill, takeover", Quick: true, Quicker: true, Bounded: true, Losses: 1, Faults: Kill | Takeover},
	{Name: "lease P", Quick: true, Quicker: true, Bounded: true, Losses: 1, Faults: LeaseP},
	{Name: "lease D", Quick: true, Quicker: true, Bounded: true, Losses: 1, Faults: LeaseD},
	{Name: "decode lease", Quick: true, Quicker: true, Bounded: true, Losses: 1, Faults: LeaseDecode},
	{Name: "cancel", Quick: true, Quicker: true, Bounded: true, Losses: 1, Faults: Cancel},
	{Name: "preempt", Quick: true, Quicker: true, Bounded: true, Losses: 1, Faults: Preempt},
	{Name: "terminate", Quick: true, Quicker: true, Bounded: true, Losses: 1, Faults: Terminate},
	{Name: "corrupt", Fine: true, Quicker: true, Bounded: true, Losses: 1, Faults: Corrupt},
	{Name: "repost", Fine: true, Quicker: true, Bounded: true, Losses: 1, Faults: Repost},
	{Name: "one start unknown", Quick: true, Quicker: true, Bounded: true, Losses: 1, Alone: true, Faults: StartUnknown},
	{Name: "one re-attach", Readers: true, Quick: true, Quicker: true, Bounded: true, Losses: 1, Alone: true, Faults: Reattach},
	{Name: "second epochs, one reset", Quick: true, Quicker: true, Bounded: true, Losses: 1, Alone: true, Begin: replanned, Faults: Reset},
}
