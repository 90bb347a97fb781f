package chaos

import "github.com/surehand/surehand/e2e/fault"

// Phase of a cell: when the fault strikes.
type Phase string

// The phases, in their order.
const (
	Admit    Phase = "admit"    // as the request arrives
	Reserve  Phase = "reserve"  // D's memory is open
	Prefill  Phase = "prefill"  // P computes
	Transfer Phase = "transfer" // bytes are on their way
	Commit   Phase = "commit"   // the target is visible
	Decode   Phase = "decode"   // the client reads
	Cancel   Phase = "cancel"   // the client leaves while bytes are on their way
	Idle     Phase = "idle"     // nothing runs; the request comes after the healing
)

// Phases in their order.
var Phases = []Phase{Admit, Reserve, Prefill, Transfer, Commit, Decode, Cancel, Idle}

// seen is how the phases that are in the middle of a request are seen.
var seen = map[Phase]fault.Phase{Reserve: fault.Reserve, Prefill: fault.Prefill, Transfer: fault.Transfer, Commit: fault.Commit,
	Decode: fault.Decode, Cancel: fault.Transfer}
