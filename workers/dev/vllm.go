package dev

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/surehand/surehand/workers/vllmenv"
)

// EngineVLLM is vLLM with our connector, on CPUs.
const EngineVLLM = "vllm"

const (
	vllmWithin = 5 * time.Minute // to import vLLM, some 20 s of CPU time, and load its model
	vllmGrace  = 8 * time.Second
	vllmPrompt = "It is a truth universally acknowledged, that a single man"
)

// vllm runs each engine as a vLLM server of its own and a front beside it.
func vllm(ctx context.Context, c Config, where places) (engines, error) {
	if slices.Contains(c.EngineArgs, "--blocks") {
		return engines{}, errors.New("--blocks is not for vLLM: its cache has the size that the server was given")
	}
	env, err := vllmenv.Install(ctx, VLLMCache(c.Cache), where.out)
	if err != nil {
		return engines{}, err
	}
	server := func(at seat) (Spec, []string, error) {
		_, text, err := net.SplitHostPort(at.listen)
		if err != nil {
			return Spec{}, nil, err
		}
		o := vllmenv.Options{Name: at.id, Model: c.Model, Transfer: transfer(at)}
		if o.Port, err = strconv.Atoi(text); err != nil {
			return Spec{}, nil, err
		}
		if c.Model != "" {
			o.Served = filepath.Base(c.Model)
		}
		url := "http://" + at.listen
		s := Spec{Name: "vllm-" + at.id, Path: env.Python, Rank: rankEngine, Grace: vllmGrace, Health: url + "/health", Within: vllmWithin,
			Addresses: map[string]string{"http": at.listen}}
		s.Args, s.Env, err = env.Server(o)
		return s, []string{"--url", url, "--connector-socket", at.front}, err
	}
	fmt.Fprintln(where.out, "vllm: each engine imports vLLM, some 20 s of CPU time")
	return engines{program: c.Self, prompt: vllmPrompt, server: server}, nil
}

// transfer is what vLLM is told of our connector.
func transfer(at seat) map[string]any {
	role := map[string]string{"prefill": "kv_producer", "decode": "kv_consumer"}[at.role]
	return map[string]any{"kv_connector": "SurehandConnector", "kv_connector_module_path": "surehand_vllm.connector",
		"kv_role": role, "engine_id": at.id, "kv_load_failure_policy": "fail",
		"kv_connector_extra_config": map[string]any{"transferd_socket": at.daemon, "front_socket": at.front}}
}

// VLLMCache is where vLLM lies, beside built binaries.
func VLLMCache(binaries string) string { return filepath.Join(filepath.Dir(binaries), "vllm") }
