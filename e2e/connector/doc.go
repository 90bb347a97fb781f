// Package connector proves our own path on real vLLM engines: one P and two D
// with the connector of transferd/connectors/vllm, each beside a transferd,
// driven by the real gateway, workflow and store. Run it with -tags vllm; the
// first run installs vLLM, some 0.9 GB to fetch.
package connector
