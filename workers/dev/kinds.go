package dev

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/surehand/surehand/workers/llamacpp/install"
)

// EngineReference is the kind of engine that is part of this program.
const EngineReference = "reference"

// engines is how a kind of engine is run.
type engines struct {
	program string
	args    []string
	prompt  string // that its model does something sensible with
	// server is the program that program stands in front of, for one seat, and
	// what the front is told of it; nil: program is the engine itself.
	server func(at seat) (Spec, []string, error)
}

// seat is one engine's place: its name and role, and where it finds the transferd
// beside it and its front.
type seat struct{ id, role, listen, daemon, front string }

// venice begins what a small model goes on with sensibly.
const venice = "The city of Venice is known for"

// kind makes an engine ready to run: it finds or builds its program, and fetches
// what it runs on into the cache, saying so on progress.
type kind func(ctx context.Context, c Config, where places) (engines, error)

var kinds = map[string]kind{EngineReference: reference, "llamacpp": llamacpp, EngineVLLM: vllm}

// Kinds of engine that dev can start.
func Kinds() string { return strings.Join(slices.Sorted(maps.Keys(kinds)), ", ") }

func reference(_ context.Context, c Config, _ places) (engines, error) {
	return engines{program: c.Self, args: c.OwnArgs, prompt: "What do you think of Mr. Knightley?"}, nil
}

var llamacppProgram = binary{
	name: "surehand-llamacpp", dir: ".", target: "./workers/llamacpp/cmd/surehand-llamacpp",
	sources: []string{"workers", "activities", "workflows", "transferd", "contracts", "go.mod", "go.sum"},
	env:     []string{"CGO_ENABLED=0"},
	about:   "a minute, once",
}

func llamacpp(ctx context.Context, c Config, where places) (engines, error) {
	w, known := install.Models[c.Model]
	if c.Model == "" {
		w, known = install.SmolLM, true
	}
	if !known {
		return engines{}, fmt.Errorf("no model %q for llama.cpp; there are %s", c.Model, strings.Join(slices.Sorted(maps.Keys(install.Models)), ", "))
	}
	program, err := where.find(ctx, llamacppProgram)
	if err != nil {
		return engines{}, err
	}
	at, err := install.Install(ctx, LlamacppCache(c.Cache), w, where.out)
	if err != nil {
		return engines{}, err
	}
	args := []string{"--libraries", at.Libraries, "--weights", at.Weights, "--model", at.Model}
	if at.Template != "" {
		args = append(args, "--chat-template", at.Template)
	}
	return engines{program: program, args: args, prompt: venice}, nil
}

// LlamacppCache is where llama.cpp and its weights lie, beside built binaries.
func LlamacppCache(binaries string) string { return filepath.Join(filepath.Dir(binaries), "llamacpp") }
