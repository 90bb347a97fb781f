// Package vllm proves the native path on real vLLM engines: what the fakes of
// e2e/native were made after. Run it with -tags vllm; the first run installs
// vLLM, some 0.9 GB to fetch.
package vllm
