// Package vllm is the home of surehand-vllm, the Python package by which an
// unmodified vLLM takes part in handoffs: its KV cache lies in a memfd that
// transferd maps, and a KV connector does the engine's duties of
// transferd/client.
//
// Nothing of the protocol is written twice: Generated writes the messages'
// schema, the constants and golden frames from contracts and from the daemon's
// own code; tests on both sides compare with them.
package vllm

import "embed"

// Package is the Python source, to be put on PYTHONPATH beside vLLM.
//
//go:embed pyproject.toml surehand_vllm/*.py surehand_vllm/schema.binpb surehand_vllm/py.typed
var Package embed.FS
