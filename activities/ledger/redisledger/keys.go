package redisledger

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/surehand/surehand/contracts/handoff"
)

// Every key of one engine, and every key of one claim, has one hash tag, so a
// Cluster keeps what a script touches in one slot. The two that every process
// shares, registry and born, are single keys. Only ClaimAndReserve touches two
// tags: on a Cluster it is two calls.
const (
	registryKey = "surehand:ledger:engines"
	bornKey     = "surehand:ledger:born"
)

func seatKeys(engine handoff.EngineID) []string {
	tag := "surehand:{engine:" + string(engine) + "}:"
	return []string{tag + "seat", tag + "ends", tag + "blocks", tag + "gone"}
}

// claimKey hashes what clients chose: no text of theirs is a name in the store,
// and no pair of tenant and key can be mistaken for another.
func claimKey(tenant, key string) []string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s%s", len(tenant), tenant, key))
	return []string{"surehand:{claim:" + hex.EncodeToString(sum[:16]) + "}"}
}

func markKey(h handoff.HandoffID) string {
	return "surehand:{handoff:" + string(h) + "}:cancelled"
}
