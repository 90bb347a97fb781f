package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/surehand/surehand/workers/llamacpp/install"
	"github.com/surehand/surehand/workers/vllmenv"
)

// EngineVLLM is vLLM with our connector, on CPUs.
const EngineVLLM = "vllm"

const (
	vllmTiny    = "tiny"          // the --model that has random weights
	vllmCache   = 384 << 20       // bytes of KV: 65 blocks of 128 tokens of the default model
	vllmContext = 2048            // tokens
	vllmWithin  = 5 * time.Minute // to import vLLM, some 20 s of CPU time, and load its model
	vllmGrace   = 8 * time.Second
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
	m, err := c.vllmModel(ctx, env, where.out)
	if err != nil {
		return engines{}, err
	}
	server := func(at seat) (Spec, []string, error) {
		_, text, err := net.SplitHostPort(at.listen)
		if err != nil {
			return Spec{}, nil, err
		}
		o := vllmenv.Options{Name: at.id, Model: m.folder, Served: m.name, CacheBytes: vllmCache, Context: vllmContext}.
			Connector(at.role == "prefill", at.daemon, at.front, nil)
		if o.Port, err = strconv.Atoi(text); err != nil {
			return Spec{}, nil, err
		}
		url := "http://" + at.listen
		s := Spec{Name: "vllm-" + at.id, Path: env.Python, Rank: rankEngine, Grace: vllmGrace, Health: url + "/health", Within: vllmWithin,
			Addresses: map[string]string{"http": at.listen}}
		s.Args, s.Env, err = env.Server(o)
		s.Env = append(s.Env, vllmenv.SocketsIn(filepath.Dir(at.front)))
		return s, []string{"--url", url, "--connector-socket", at.front}, err
	}
	fmt.Fprintln(where.out, "vllm: each engine imports vLLM, some 20 s of CPU time")
	return engines{program: c.Self, prompt: m.prompt, server: server}, nil
}

// vllmModel is what the servers load, and what to ask it.
type vllmModel struct{ folder, name, prompt string }

// vllmModel finds the model: small real weights unless another is named.
func (c Config) vllmModel(ctx context.Context, env vllmenv.Env, out io.Writer) (vllmModel, error) {
	switch c.Model {
	case vllmTiny:
		return vllmModel{env.Model, vllmTiny, "It is a truth universally acknowledged, that a single man"}, nil
	case "", install.SmolLM.Model:
		w := install.SmolLM
		file, err := install.WeightsOf(ctx, LlamacppCache(c.Cache), w, out)
		if err != nil {
			return vllmModel{}, err
		}
		folder, err := env.Weights(ctx, w.Model, file, w.SHA256, out)
		return vllmModel{folder, w.Model, venice}, err
	}
	return vllmModel{c.Model, filepath.Base(c.Model), venice}, nil
}

// VLLMCache is where vLLM lies, beside built binaries.
func VLLMCache(binaries string) string { return filepath.Join(filepath.Dir(binaries), "vllm") }
