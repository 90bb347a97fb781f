package redisledger

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/activities/ledger/ledgertest"
)

// Whatever a store answers is parsed or refused, never believed out of bounds.
func FuzzRepliesAreParsedOrRefused(f *testing.F) {
	record, err := json.Marshal(ledgertest.Seen("d1", 3))
	if err != nil {
		f.Fatal(err)
	}
	f.Add("12\x00" + string(record))
	f.Add("1\x00h1\x00g1\x00claimed\x00")
	f.Add("6\x001\x003")
	f.Add("-1\x00{}")
	f.Fuzz(func(t *testing.T, text string) {
		r := reply{strings.Split(text, "\x00")}
		if engines, err := r.engines(); err == nil {
			for _, e := range engines {
				if err := e.Validate(); err != nil || e.Age < 0 || e.Age > ledger.MarkMax {
					t.Fatalf("%q became %+v (%v)", text, e, err)
				}
			}
		}
		if a, err := r.claim(); err == nil && a.State != ledger.StateClaimed && a.State != ledger.StateSettled {
			t.Fatalf("%q became %+v", text, a)
		}
		e := ledger.Registered{Engine: ledger.Engine{NodeIncarnation: 3}}
		if err := r.seat(&e); err == nil && e.Built != (r.values[2] == "3" || strings.TrimLeft(r.values[2], "0") == "3") {
			t.Fatalf("%q became %+v", text, e)
		}
	})
}
