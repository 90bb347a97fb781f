// Package vllmengine is the front of one vLLM server that runs the connector of
// transferd/connectors/vllm: it gives the server the engine API of
// contracts/proto, so that the orchestrator drives it as it drives any engine.
//
//	orchestrator ── Reserve, Prefill, Attach, Cancel ──▶ front ── OpenAI HTTP ──▶ vLLM
//	                                                      ▲                        │ scheduler, KV cache
//	                                                      └── connector socket ── connector ──▶ transferd
//
// A request to vLLM carries its attempt's plan. The connector does the engine's
// duties to transferd and tells the front of each attempt: D's target is open
// (with its token), P's source is sealed (with its capability), committed, over,
// freed. D's request is sent at Reserve: vLLM's own block manager is the
// reservation, and the answer's stream stays open until the commit lets it run.
//
// # Duties
//
//  1. No token is passed on before the connector said *committed*.
//  2. When transferd ends an attempt, its stream ends with it in the same instant
//     and vLLM is told to stop, by the end of its request's connection.
//  3. The connection of the connector is the engine's life: with it everything is
//     over here.
//
// # Idempotence
//
// Reserve, Prefill and Cancel are keyed by the attempt: a repeat joins what runs
// and answers the present state, for as long as the attempt is remembered (this
// process's life, up to maxTombstones). Attach only reads.
package vllmengine
