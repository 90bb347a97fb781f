// Package fleet runs a whole Surehand as real processes on loopback, in a
// directory of its own, so that a kill means something:
//
//	            ┌──────────┐        ┌───────┐
//	            │ temporal │        │ redis │
//	            └────┬─────┘        └───┬───┘
//	       ┌─────────┴───────┬─────────-┴──────────┬────────────┐
//	    ┌──┴─┐            ┌──┴─┐                   │            │
//	    │ g1 │            │ g2 │   gateway+worker  │            │
//	    └──┬─┘            └──┬─┘                   │            │
//	  ┌────┴───┬────────┬────┴───┐                 │            │
//	┌─┴──┐   ┌─┴──┐   ┌─┴──┐   ┌─┴──┐   engines, which register─┘
//	│ p1 │   │ p2 │   │ d1 │   │ d2 │
//	└─┬──┘   └─┬──┘   └─┬──┘   └─┬──┘   engine sockets
//	┌─┴──┐   ┌─┴──┐   ┌─┴──┐   ┌─┴──┐
//	│ tp1│   │ tp2│   │ td1│   │ td2│   transferds
//	└────┘   └────┘   └────┘   └────┘
//
// Every process has a name, keeps its addresses over a restart, and can be
// killed, paused and started again by that name. What is held anywhere is
// counted from the daemons, the engines, the ledger and the histories
// themselves. All processes end with the one that started them.
package fleet
