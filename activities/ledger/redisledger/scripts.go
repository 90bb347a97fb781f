package redisledger

import (
	"embed"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var files embed.FS

// One script a verb, each proved harmless when repeated by ledgertest. EVALSHA
// is tried first; a server that does not know the script gets its text.
var (
	claimScript      = script("lib_claim", "claim")
	settleScript     = script("settle")
	unclaimScript    = script("unclaim")
	reserveScript    = script("lib_base", "lib_seat", "reserve")
	releaseScript    = script("lib_base", "lib_seat", "release")
	renewScript      = script("lib_base", "lib_seat", "renew")
	rebuildScript    = script("lib_base", "lib_seat", "rebuild")
	seatScript       = script("lib_base", "lib_seat", "seat")
	touchScript      = script("lib_base", "lib_seat", "touch")
	claimReserve     = script("lib_base", "lib_seat", "lib_claim", "claim_reserve")
	registerScript   = script("lib_base", "lib_registry", "register")
	deregisterScript = script("lib_base", "lib_registry", "deregister")
	enginesScript    = script("lib_base", "lib_registry", "engines")
	bornScript       = script("lib_base", "born")
)

// script joins the named files: libraries first, the verb last.
func script(names ...string) *redis.Script {
	var text strings.Builder
	for _, n := range names {
		b, err := files.ReadFile("lua/" + n + ".lua")
		if err != nil {
			panic(err) // the files are part of this binary
		}
		text.Write(b)
	}
	return redis.NewScript(text.String())
}
