package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/peers/fake"
)

// Names of the sides.
const (
	Direct       = "direct"
	DirectSGLang = "direct-sglang"
	Ours         = "surehand"
	VLLMRouter   = "vllm-router"
	SGLangRouter = "sglang-router"
	Dynamo       = "dynamo"
)

// Router is another project's program.
type Router struct {
	Name, Version string
	Kind          fake.Kind
	packages      []string // of pip
	// args of its command: where it listens, for requests and for metrics, and the engines.
	args func(listen, metrics string, p, d []*Engine) []string
	bin  string // below the environment
	skip string // why it is not run at all; empty: it is
}

// Routers that are known.
var Routers = []Router{
	{Name: VLLMRouter, Version: "0.1.17", Kind: fake.VLLM, packages: []string{"vllm-router==0.1.17"}, bin: "bin/vllm-router",
		args: func(listen, metrics string, p, d []*Engine) []string {
			args := append(hostPort(listen), "--vllm-pd-disaggregation", "--policy", "round_robin", "--log-level", "warning",
				"--worker-startup-check-interval", "1", "--prometheus-port", port(metrics))
			for _, e := range p {
				args = append(args, "--prefill", e.URL)
			}
			for _, e := range d {
				args = append(args, "--decode", e.URL)
			}
			return args
		}},
	{Name: SGLangRouter, Version: "0.3.2", Kind: fake.SGLang, packages: []string{"sglang-router==0.3.2"}, bin: "bin/sglang-router",
		args: func(listen, metrics string, p, d []*Engine) []string {
			args := append(append([]string{"launch"}, hostPort(listen)...), "--pd-disaggregation", "--policy", "round_robin", "--log-level", "warn",
				"--worker-startup-check-interval", "1", "--prometheus-port", port(metrics))
			for _, e := range p {
				args = append(args, "--prefill", e.URL, port(e.Side))
			}
			for _, e := range d {
				args = append(args, "--decode", e.URL)
			}
			return args
		}},
	{Name: Dynamo, Version: "1.6.1", skip: "its frontend speaks to engines of its own kind only, over its request plane: it cannot stand in front of these"},
}

func hostPort(address string) []string {
	host, p, _ := net.SplitHostPort(address) // an address of fleet's
	return []string{"--host", host, "--port", p}
}

func port(address string) string {
	_, p, _ := net.SplitHostPort(address)
	return p
}

// errSkipped says why a router is not in the report.
var errSkipped = errors.New("skipped")

// find gives the router's command, installing it when that was asked for. Each
// has a Python environment of its own in the cache.
func (r Router) find(ctx context.Context, install bool) (string, error) {
	if r.skip != "" {
		return "", fmt.Errorf("%w: %s", errSkipped, r.skip)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	env := filepath.Join(cache, "surehand", "routers", r.Name+"-"+r.Version)
	bin := filepath.Join(env, r.bin)
	if _, err := os.Stat(bin); err == nil {
		return bin, nil
	}
	if !install {
		return "", fmt.Errorf("%w: not installed", errSkipped)
	}
	for _, command := range [][]string{{"python3", "-m", "venv", env},
		append([]string{filepath.Join(env, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"}, r.packages...)} {
		if out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
			last := strings.TrimSpace(string(out))
			return "", fmt.Errorf("%w: %s: %w: %s", errSkipped, strings.Join(command[:3], " "), err, last[max(0, len(last)-300):])
		}
	}
	_, err = os.Stat(bin)
	return bin, err
}

// start runs it in front of engines; a router of before is ended.
func (r Router) start(ctx context.Context, w *world, bin string, p, d []*Engine) (*fleet.Process, string, error) {
	at, err := fleet.Address()
	if err != nil {
		return nil, "", err
	}
	metrics, err := fleet.Address()
	if err != nil {
		return nil, "", err
	}
	process, err := w.f.Add(ctx, fleet.Foreign{Name: r.Name, Path: bin, Args: r.args(at, metrics, p, d), Answers: "http://" + at + "/health"})
	return process, at, err
}
