// Package chaos strikes a whole Surehand of real processes with faults, one cell
// of a matrix at a time, and says what must have become of the requests.
//
// All processes live in a network namespace of their own, whose loopback is
// theirs alone; a rule on its input hook is a cut that the sender does not
// notice, as a real one is:
//
//	┌ network namespace ──────────────────────────────────────────────┐
//	│  client ─▶ g1 g2 ─┬▶ temporal                                   │
//	│                   ├▶ redis ◀── engines                          │
//	│                   ├▶ p1 p2 ── tp1 tp2 ══▶ td1 td2 ── d1 d2      │
//	│                   └▶ control ports of tp*, td*                  │
//	│  input hook: drop requests to | answers from a process's ports  │
//	└─────────────────────────────────────────────────────────────────┘
//
// A cell is (fault, victim, phase). It runs by the rule of a nemesis: a request
// reaches the phase, the fault is injected and held past every lease, healed,
// and everything comes to rest; then the client asks again with its key. The
// outcome that the cell requires is in expect.go; the invariants that every
// cell requires are in check.go.
package chaos
