package redisledger

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
)

// Register implements ledger.Registry. Idempotent under the process's
// incarnation. The same round trip keeps the engine's account.
func (l *Ledger) Register(ctx context.Context, e ledger.Engine, ttl time.Duration) error {
	if err := ledger.ValidateRegistration(e, ttl); err != nil {
		return err
	}
	record, err := json.Marshal(e)
	if err != nil {
		return handoff.Errorf(handoff.CodeInvalid, "engine: %v", err)
	}
	_, errs := l.calls(ctx, []call{
		{registerScript, []string{registryKey}, []any{
			string(e.ID), uint64(e.ProcessIncarnation), ms(ttl), ledger.MaxEngines, ms(ledger.SeatTTL), record,
		}},
		{touchScript, seatKeys(e.ID), []any{ms(ledger.SeatTTL)}},
	})
	if errs[0] != nil {
		return errs[0]
	}
	return errs[1]
}

// Engines implements ledger.Registry: the registry, then every engine's account
// in one pipeline.
func (l *Ledger) Engines(ctx context.Context) ([]ledger.Registered, error) {
	r, err := l.call(ctx, call{enginesScript, []string{registryKey}, nil})
	if err != nil {
		return nil, err
	}
	out, err := r.engines()
	if err != nil || len(out) == 0 {
		return nil, err
	}
	asks := make([]call, len(out))
	for i, e := range out {
		asks[i] = call{seatScript, seatKeys(e.ID), nil}
	}
	seats, errs := l.calls(ctx, asks)
	for i := range out {
		if errs[i] != nil {
			return nil, errs[i]
		}
		if err := seats[i].seat(&out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (r reply) engines() ([]ledger.Registered, error) {
	if len(r.values)%2 != 0 {
		return nil, malformed(r)
	}
	out := make([]ledger.Registered, len(r.values)/2)
	for i := range out {
		age, err := strconv.ParseInt(r.values[2*i], 10, 64)
		if err != nil || age < 0 || age > ledger.MarkMax.Milliseconds() {
			return nil, malformed(r)
		}
		if err := json.Unmarshal([]byte(r.values[2*i+1]), &out[i].Engine); err != nil {
			return nil, handoff.Errorf(handoff.CodeInternal, "registration: %v", err)
		}
		if err := out[i].Validate(); err != nil {
			return nil, err
		}
		out[i].Age = time.Duration(age) * time.Millisecond
	}
	slices.SortFunc(out, func(a, b ledger.Registered) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

// seat fills in an engine's account.
func (r reply) seat(e *ledger.Registered) error {
	if len(r.values) != 3 {
		return malformed(r)
	}
	used, err1 := strconv.ParseUint(r.values[0], 10, 32)
	promises, err2 := strconv.ParseUint(r.values[1], 10, 32)
	built, err3 := strconv.ParseUint(r.values[2], 10, 64)
	if cmp.Or(err1, err2, err3) != nil {
		return malformed(r)
	}
	e.Used, e.Promises = uint32(used), uint32(promises)
	e.Built = handoff.Incarnation(built) == e.NodeIncarnation
	return nil
}

// Deregister implements ledger.Registry. Idempotent under the process's
// incarnation.
func (l *Ledger) Deregister(ctx context.Context, engine handoff.EngineID, process handoff.Incarnation) error {
	if err := handoff.ValidateID("engine", string(engine)); err != nil {
		return err
	}
	_, err := l.call(ctx, call{deregisterScript, []string{registryKey}, []any{string(engine), uint64(process)}})
	return err
}
