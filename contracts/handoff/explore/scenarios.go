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
// P, each bounded so that it closes: Losses of the answers that a worker could have
// are lost, of both together, and each fault strikes each request once. Messages
// still come late, in any order, twice or never. Room makes them wait for each
// other's memory.
var Pairs = []Scenario{
	{Name: "no loss, both fenced", Quick: true, Quicker: true, Begin: closed, Bounded: true},
	{Name: "no loss, both fenced, room for one", Quick: true, Quicker: true, Begin: closed, Room: 1, Bounded: true},
	{Name: "no loss, both fenced, D host restart", Quick: true, Quicker: true, Begin: closed, Bounded: true, Faults: RestartHost},
	{Name: "no loss, both fenced, TP restart", Quick: true, Quicker: true, Begin: closed, Bounded: true, Faults: RestartTP},
	{Name: "no loss, both may commit", Quick: true, Quicker: true, Begin: validated, Bounded: true},
	{Name: "no loss, both may commit, room for two, D host restart", Quick: true, Quicker: true, Begin: delivered, Room: 2, Bounded: true, Faults: RestartHost},

	// From the first message on.
	{Name: "one loss", Quick: true, Quicker: true, Bounded: true, Losses: 1},
	{Name: "one loss, room for one", Quick: true, Quicker: true, Bounded: true, Losses: 1, Room: 1},
	{Name: "one loss, TP restart", Quick: true, Quicker: true, Bounded: true, Losses: 1, Faults: RestartTP},
	{Name: "no loss, takeover", Quick: true, Quicker: true, Bounded: true, Faults: Takeover},
	{Name: "no loss, TD restart", Quick: true, Quicker: true, Bounded: true, Faults: RestartTD},
	{Name: "no loss, D host restart", Quick: true, Quicker: true, Bounded: true, Faults: RestartHost},
	{Name: "no loss, room for one, D host restart", Quick: true, Quicker: true, Bounded: true, Room: 1, Faults: RestartHost},
	{Name: "no loss, TP restart", Quick: true, Quicker: true, Bounded: true, Faults: RestartTP},
	{Name: "no loss, gateway restart, takeover", Quick: true, Quicker: true, Bounded: true, Faults: RestartGW | Takeover},
	{Name: "no loss, kill, takeover", Quick: true, Quicker: true, Bounded: true, Faults: Kill | Takeover},
	{Name: "no loss, lease P", Quick: true, Quicker: true, Bounded: true, Faults: LeaseP},
	{Name: "no loss, lease D", Quick: true, Quicker: true, Bounded: true, Faults: LeaseD},
	{Name: "no loss, decode lease", Quick: true, Quicker: true, Bounded: true, Faults: LeaseDecode},
	{Name: "no loss, cancel", Quick: true, Quicker: true, Bounded: true, Faults: Cancel},
	{Name: "no loss, preempt", Quick: true, Quicker: true, Bounded: true, Faults: Preempt},
	{Name: "no loss, terminate", Quick: true, Quicker: true, Bounded: true, Faults: Terminate},
	{Name: "no loss, corrupt", Fine: true, Quicker: true, Bounded: true, Faults: Corrupt},
	{Name: "no loss, repost", Fine: true, Quicker: true, Bounded: true, Faults: Repost},
	{Name: "no loss, one start unknown", Quick: true, Quicker: true, Bounded: true, Alone: true, Faults: StartUnknown},
	{Name: "no loss, one re-attach", Readers: true, Quick: true, Quicker: true, Bounded: true, Alone: true, Faults: Reattach},
	{Name: "no loss, second epochs, one reset", Quick: true, Quicker: true, Bounded: true, Alone: true, Begin: replanned, Faults: Reset},
}
