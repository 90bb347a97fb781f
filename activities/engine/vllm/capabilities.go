package vllm

import (
	"time"

	"github.com/surehand/surehand/contracts/handoff"
)

// Capabilities is what one kind of engine can do by itself, without a daemon of
// ours beside it. The code asks these values; docs/engines.md prints them.
type Capabilities struct {
	Style Style
	Title string

	// Lease is how long P pins what it computed while nobody fetches it, unless
	// it is configured otherwise by LeaseSetting. It is also the timer by which
	// P reclaims; zero would mean that nothing reclaims.
	Lease        time.Duration
	LeaseSetting string
	// Heartbeat: D renews P's lease while it holds the request, so that a late
	// first token need not be a stale one.
	Heartbeat bool
	// Counters: P counts what expired, so that a lapse can be seen afterwards.
	Counters bool
	// Rejection: a decode server that refuses a request tells P to free.
	Rejection bool
	// RejectionNeedsFetch: it does so only where it has fetched from that P before;
	// else it is made to fetch, for one token that nobody reads.
	RejectionNeedsFetch bool
	// AbortBefore, AbortAfter: what ends a prefill, and a decode.
	AbortBefore, AbortAfter string
	// ReserveFirst: D can hold room before P computes.
	ReserveFirst bool
	// Checksum: D verifies the bytes it received.
	Checksum bool
	// Revoke: a fetch that is under way can be stopped, and its end proved.
	Revoke bool
	// Seen says what ran of it on real engines, vLLM 0.32.0 for CPUs; for people.
	Seen string
}

// Own is the lease that the orchestrator counts for itself: shorter than the
// engine's, from before P was asked. After it D is not asked any more.
func (c Capabilities) Own() time.Duration { return handoff.HolderLease(c.Lease) }

const dropped = "connection dropped: aborted"

// Table is every kind that this package speaks to.
var Table = []Capabilities{
	{
		Style: NIXLPull, Title: "vLLM, NIXL pull", Lease: 30 * time.Second, LeaseSetting: "kv_connector_extra_config.kv_lease_duration",
		Heartbeat: true, Counters: true, Rejection: true, RejectionNeedsFetch: true, AbortBefore: dropped + ", nothing is pinned", AbortAfter: dropped,
		Seen: "yes, NIXL 1.5.1: `task e2e:vllm`",
	},
	{
		// Heartbeats do not renew in push mode (museum T-20). P finds D's registration by the
		// request's id without its random end: both must be sent the same X-Request-Id.
		Style: NIXLPush, Title: "vLLM, NIXL push", Lease: 30 * time.Second, LeaseSetting: "kv_connector_extra_config.kv_lease_duration",
		Heartbeat: false, Counters: true, Rejection: true, AbortBefore: dropped + ", nothing is pinned", AbortAfter: dropped + "; a write under way may still land in D",
		Seen: "tokens and counters, NIXL 1.5.1: `go test -tags vllm -run Pushed ./e2e/vllm`; of its faults none",
	},
	{
		Style: Mooncake, Title: "vLLM, Mooncake", Lease: 480 * time.Second, LeaseSetting: "VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT",
		Heartbeat: false, Counters: false, Rejection: false, AbortBefore: dropped + ", nothing is pinned", AbortAfter: dropped,
		Seen: "no: at its start the connector's worker asks `torch.accelerator.current_device_index()`, which ends an engine on CPUs with `RuntimeError: No CUDA GPUs are available` (Mooncake 0.3.13)",
	},
}

// Of finds the capabilities of a style.
func Of(s Style) (Capabilities, error) {
	for _, c := range Table {
		if c.Style == s {
			return c, nil
		}
	}
	return Capabilities{}, handoff.Errorf(handoff.CodeInvalid, "style %q is not known", clip(string(s)))
}

// Gap is a rule of contracts/handoff that an engine alone cannot keep.
type Gap struct {
	Rules   string // numbers of the rules and statements
	Missing string
	Instead string
	Ends    handoff.Code // what a request ends with, or is tried again after
}

// Gaps hold for every kind of the table.
var Gaps = []Gap{
	{"5a, 5b", "no daemon outlives the orchestrator: when its process dies, nobody can say whether D was asked", "the table lives in the orchestrator; another process of it proves nothing", handoff.CodeOutcomeUnknown},
	{"9, S8", "no flag page: a restarted orchestrator cannot adopt a running decode", "D aborts when the orchestrator's connection closes; its blocks are free at once", handoff.CodeOutcomeUnknown},
	{"10, 21, S4", "nobody proves that a fetch has drained", "P and D free by their own rules; we never say that memory is free", handoff.CodeNone},
	{"11, S6", "the transfer and the decode are one request: nothing can be verified in between", "the first token is held back until P's lease and its count of lapses are checked", handoff.CodeNotValidated},
	{"12, S5, S14", "P cannot be asked whether it held the blocks without a gap", "our own lease, shorter than P's, is refused after its end; P's count of lapsed leases must not rise", handoff.CodeLease},
	{"4, S14", "D keeps what it fetched in its prefix cache before anybody could check it, and would serve a stale fetch again without a transfer", "each attempt has a cache salt of its own at D: nothing of it is found again, and a native hand-off finds nothing in D's prefix cache", handoff.CodeNone},
	{"15, 28, S7", "no pins for each grant, no sealed digests", "revision and version are compared before the prefill; a damaged byte is not seen", handoff.CodeMismatch},
	{"17", "an engine does not refuse orders to an earlier life of it", "P's start time and engine id are compared before the first token is given", handoff.CodeNotValidated},
	{"16, S17", "D cannot hold room before the prefill", "our promises, D's blocks and queue as its metrics tell them; a D that is full all the same refuses", handoff.CodeCapacity},
	{"S12", "a D with policy recompute computes the prompt itself without a word", "nothing is reported as direct; run D with kv_load_failure_policy=fail", handoff.CodeEngine},
	{"S15", "P serves whoever knows its block ids", "parameters stay in memory: in no history, log or store", handoff.CodeNone},
	{"L2, L5", "P's blocks cannot be taken back by us when every D is dead", "the engine's own reclaim timer", handoff.CodeNone},
}
