// Package placement proposes a P and a D for a request: pure scores over a view
// of the fleet, with the reasons, and the breakers that keep broken engines and
// links out of it. A proposal takes nothing and proves nothing: the ledger and
// the engines decide, and only the plan that history holds counts.
//
// What is missing is unknown, never idle: an engine that did not say its load,
// or said it too long ago, counts as the busiest that did, and a little worse.
// What is unknown about compatibility (a layout) is not compatible.
//
// D comes first, for no prefill is wasted then for want of room: the one with
// the least promised and live KV after the request. P is the better of two drawn
// at random, so that gateways with one view do not all pick one engine.
package placement
