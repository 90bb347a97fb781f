// Package gateway is the front door: OpenAI-compatible HTTP with server-sent
// events, and the gRPC submit API. It speaks protocols, checks and bounds what
// comes in, and hands one validated request to the orchestrator; it decides
// nothing about a handoff.
//
// What a client can rely on:
//
//   - an error before the first byte is a status; after it, an error event.
//     Every stream ends in [DONE], or in one error event and then the end.
//   - a field that would change the answer and is not supported is refused by
//     name; none is ignored in silence.
//   - a client that leaves closes its follower, which cancels P, D and the
//     transfer directly when nobody else follows.
//   - x-request-id is echoed for the client's own logs. It is never identity:
//     that is the tenant and the Idempotency-Key.
//
// Chat messages become one prompt by a fixed rule, see render.
package gateway
