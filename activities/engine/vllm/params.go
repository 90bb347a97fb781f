package vllm

import (
	"encoding/json"
	"strconv"

	"github.com/surehand/surehand/contracts/handoff"
)

// Style is which of vLLM's connectors a pair speaks.
type Style string

// Styles.
const (
	NIXLPull Style = "nixl"
	NIXLPush Style = "nixl-push"
	Mooncake Style = "mooncake"
)

// Transfer is under which parameters D may fetch what P computed. Params are
// kept in memory only: whoever has them can read P's blocks. Engine and Request
// name them in logs.
type Transfer struct {
	Params  json.RawMessage
	Engine  string // P's engine id, new with each start unless it is configured
	Request string // P's name of the request
}

// wanted is what P is asked for.
func (s Style) wanted(transferID string) string {
	if s == Mooncake {
		return `{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":` + strconv.Quote(transferID) + `}`
	}
	return `{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`
}

// nixlAnswer is what of P's parameters we look at; the rest travels unread.
type nixlAnswer struct {
	DoRemotePrefill bool            `json:"do_remote_prefill"`
	Blocks          json.RawMessage `json:"remote_block_ids"`
	Engine          string          `json:"remote_engine_id"`
	Request         string          `json:"remote_request_id"`
	Host            string          `json:"remote_host"`
	Port            json.RawMessage `json:"remote_port"`
	Mode            string          `json:"transfer_mode"`
}

// transfer reads P's parameters. A P without a connector answers none, and D
// would then compute the prompt itself without a word (museum V-03).
func (s Style) transfer(raw json.RawMessage) (*Transfer, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, handoff.Errorf(handoff.CodeMismatch, "P answered without transfer parameters: is its KV connector on?")
	}
	var a nixlAnswer
	if err := json.Unmarshal(raw, &a); err != nil {
		return nil, handoff.Errorf(handoff.CodeMismatch, "P's transfer parameters are malformed")
	}
	switch {
	case !a.DoRemotePrefill:
		return nil, handoff.Errorf(handoff.CodeMismatch, "P's transfer parameters offer nothing to fetch")
	case a.Engine == "" || a.Host == "" || len(a.Port) == 0 || string(a.Port) == "null":
		return nil, handoff.Errorf(handoff.CodeMismatch, "P's transfer parameters do not say where to fetch from")
	case len(a.Blocks) < 3 || a.Blocks[0] != '[':
		return nil, handoff.Errorf(handoff.CodeMismatch, "P's transfer parameters name no blocks")
	case a.Mode != "" && (a.Mode == "push") != (s == NIXLPush):
		return nil, handoff.Errorf(handoff.CodeMismatch, "P transfers by %q, the pair is configured for %q", clip(a.Mode), s)
	}
	return &Transfer{Params: raw, Engine: clip(a.Engine), Request: clip(a.Request)}, nil
}

// mooncake makes D's parameters: the transfer id is ours, the engine id is what
// P's bootstrap server answered.
func mooncake(transferID, engineID, bootstrap string) *Transfer {
	params := `{"do_remote_prefill":true,"do_remote_decode":false,"remote_engine_id":` + strconv.Quote(engineID) +
		`,"remote_bootstrap_addr":` + strconv.Quote(bootstrap) + `,"transfer_id":` + strconv.Quote(transferID) + `}`
	return &Transfer{Params: json.RawMessage(params), Engine: clip(engineID), Request: transferID}
}

const clipBytes = 64

func clip(s string) string {
	if len(s) > clipBytes {
		return s[:clipBytes]
	}
	return s
}
