package stalekv

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/surehand/surehand/e2e/pair"
)

// plain does what a router of prefill and decode servers does: P first, one token,
// then the same request with P's parameters to D. held is called in between.
func plain(ctx context.Context, a pair.Ask, p, d string, held func(context.Context) error) (pair.Answer, error) {
	prefill := a
	prefill.Tokens, prefill.Whole = 1, true
	prefill.More = with(a.More, json.RawMessage(`{"do_remote_decode":true,"do_remote_prefill":false}`))
	first, err := prefill.Send(ctx, p)
	if err != nil || !first.Ended() || first.Params == nil {
		return first, fmt.Errorf("prefill: %s, %w", first, err)
	}
	if err := held(ctx); err != nil {
		return pair.Answer{}, err
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
