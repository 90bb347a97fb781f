package pair

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
)

// Bare does what a router of prefill and decode servers does: P first, one token,
// then the same request with P's parameters to D. held, which may be nil, is
// called in between.
func (a Ask) Bare(ctx context.Context, p, d string, held func(context.Context) error) (Answer, error) {
	prefill := a
	prefill.Tokens, prefill.Whole = 1, true
	prefill.More = with(a.More, json.RawMessage(`{"do_remote_decode":true,"do_remote_prefill":false}`))
	first, err := prefill.Send(ctx, p)
	if err != nil || !first.Ended() || first.Params == nil {
		return first, fmt.Errorf("prefill: %s, %w", first, err)
	}
	if held != nil {
		if err := held(ctx); err != nil {
			return Answer{}, err
		}
	}
	a.More = with(a.More, first.Params)
	return a.Send(ctx, d)
}

func with(more map[string]any, params json.RawMessage) map[string]any {
	out := maps.Clone(more)
	if out == nil {
		out = map[string]any{}
	}
	out["kv_transfer_params"] = params
	return out
}
