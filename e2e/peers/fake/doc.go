// Package fake is the engines of the comparison with other routers: one vLLM
// (NIXL hand-off) or SGLang (bootstrap hand-off) server that is cheap enough to
// be the floor. It serves OpenAI's completions with numbered tokens at a pace
// that is set while it runs, counts what it was asked, and fails as real servers
// do. What the vLLM adapter has to withstand is vllmtest's to imitate.
package fake
