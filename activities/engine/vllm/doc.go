// Package vllm speaks to unmodified vLLM OpenAI servers and to the P/D contract
// of their own KV connectors: NIXL pull, NIXL push and Mooncake.
//
// One Server is one vLLM process as we see it: Prefill computes a prompt and
// gives the transfer parameters under which its KV may be fetched; Decode sends
// the client's own body with these parameters and streams the answer's bytes as
// they are; Reject makes a decode server tell P to free what nobody will fetch;
// Scrape and Facts read what it says of itself.
//
// Bodies are the client's. They are spliced at the top level, never decoded and
// encoded again, so tools, logprobs, guided decoding and images pass untouched.
//
// # What an engine alone cannot give
//
// Beside these engines stands no daemon of ours: nobody can revoke a read, ask
// whether the grant was held without a gap, or prove that bytes have drained.
// Capabilities says, engine by engine, what there is instead and with which
// typed error each gap ends. It is used by the code and printed in the docs.
//
// # Errors
//
// Every refusal is a *Failure, which is also a *handoff.Error: the code says what
// the caller may do. A server's own words may quote the prompt, so they stay in
// Failure.Body, for the client that sent it, and out of every Detail.
package vllm
