package vllmenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/surehand/surehand/workers/port"
)

const (
	serveWithin = 5 * time.Minute
	lookEvery   = 50 * time.Millisecond
)

// Served is the name that the tiny model is served under.
const Served = "tiny"

// Options of one engine.
type Options struct {
	Name   string
	Port   int    // 0: any; that of an earlier life for another one
	Model  string // folder; empty: the tiny model
	Served string // model name; empty: Served
	// CacheBytes is the size of the KV cache; 0: 64 MiB. A block of the tiny
	// model, 128 tokens, takes BlockBytes.
	CacheBytes int64
	Sequences  int // that run at once; 0: 8
	Context    int // tokens; 0: 1024
	// Transfer is what --kv-transfer-config says; nil: no connector.
	Transfer map[string]any
	Env      map[string]string
	Args     []string // more of the server's own flags
}

// BlockBytes is one block of the tiny model: 4 layers of 128 tokens, K and V.
const BlockBytes = 4 * 64 << 10

// NIXL makes o a side of a pair that transfers by NIXL over this machine.
// Lease is how long P pins a prompt, in seconds; 0: the engine's default.
func (o Options) NIXL(role string, lease int) (Options, error) {
	side, err := port.Free()
	if err != nil {
		return o, err
	}
	extra := map[string]any{}
	if lease > 0 {
		extra["kv_lease_duration"] = lease
	}
	o.Transfer = map[string]any{"kv_connector": "NixlConnector", "kv_role": role, "kv_buffer_device": "cpu",
		"kv_load_failure_policy": "fail", "kv_connector_extra_config": extra}
	o.Env = map[string]string{"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": strconv.Itoa(side), "UCX_TLS": "tcp,self,sm"}
	return o, nil
}

// Connector makes o a side of a pair whose bytes the transferd at the socket
// daemon moves; its front listens at the socket front. Prefill is P's role. more
// is for the connector besides.
func (o Options) Connector(prefill bool, daemon, front string, more map[string]any) Options {
	role := "kv_consumer"
	if prefill {
		role = "kv_producer"
	}
	extra := map[string]any{"transferd_socket": daemon, "front_socket": front}
	maps.Copy(extra, more)
	o.Transfer = map[string]any{"kv_connector": "SurehandConnector", "kv_connector_module_path": "surehand_vllm.connector", "kv_role": role,
		"engine_id": o.Name, "kv_load_failure_policy": "fail", "kv_connector_extra_config": extra}
	return o
}

// Push makes a side of a NIXL pair one of those in which P writes into D's blocks.
func (o Options) Push() Options {
	o.Transfer = maps.Clone(o.Transfer)
	o.Transfer["kv_connector"] = "NixlPushConnector"
	return o
}

// Multi puts o's connector inside of vLLM's connector of connectors.
func (o Options) Multi() Options {
	inner := maps.Clone(o.Transfer)
	o.Transfer = map[string]any{"kv_connector": "MultiConnector", "kv_connector_extra_config": map[string]any{"connectors": []any{inner}}}
	for _, key := range []string{"kv_role", "kv_load_failure_policy", "engine_id"} {
		o.Transfer[key] = inner[key]
	}
	delete(inner, "engine_id") // vLLM gives it to the inner ones
	return o
}

// Engine is one running vLLM API server.
type Engine struct {
	Options
	URL  string
	Log  string
	PID  int // of the server, and of its process group
	gone chan struct{}
}

// Start forks an engine and waits until it serves.
func (h *Host) Start(ctx context.Context, o Options) (*Engine, error) {
	var err error
	if o.Port == 0 {
		if o.Port, err = port.Free(); err != nil {
			return nil, err
		}
	}
	e := &Engine{Options: o, URL: "http://127.0.0.1:" + strconv.Itoa(o.Port), Log: filepath.Join(h.dir, "vllm-"+o.Name+".log"), gone: make(chan struct{})}
	args, err := h.env.args(o)
	if err != nil {
		return nil, err
	}
	order, err := json.Marshal(map[string]any{"start": o.Name, "args": args, "env": o.Env, "log": e.Log})
	if err != nil {
		return nil, err
	}
	pid := make(chan int, 1)
	h.mu.Lock()
	if h.engines[o.Name] != nil {
		h.mu.Unlock()
		return nil, fmt.Errorf("engine %s runs already", o.Name)
	}
	h.engines[o.Name], h.started[o.Name] = e, pid
	h.mu.Unlock()
	if _, err := h.orders.Write(append(order, '\n')); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, serveWithin)
	defer cancel()
	select {
	case e.PID = <-pid:
	case <-h.over:
		return nil, errors.New("the host of the engines ended")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := e.serves(ctx); err != nil {
		return nil, errors.Join(err, e.Kill(), last(e.Log))
	}
	return e, nil
}

// Server is the command line of one engine as a process of its own, with an
// import of its own: slower to begin than a Host's forks, and nobody's child but
// its caller's. Options must name a port.
func (e Env) Server(o Options) (args, env []string, err error) {
	args, err = e.args(o)
	for name, value := range o.Env {
		env = append(env, name+"="+value)
	}
	return append([]string{e.Host}, args...), append(e.environ(), env...), err
}

func (e Env) args(o Options) ([]string, error) {
	text := func(v, otherwise string) string {
		if v == "" {
			return otherwise
		}
		return v
	}
	number := func(v, otherwise int64) string {
		if v == 0 {
			v = otherwise
		}
		return strconv.FormatInt(v, 10)
	}
	args := []string{"--model", text(o.Model, e.Model), "--served-model-name", text(o.Served, Served),
		"--host", "127.0.0.1", "--port", strconv.Itoa(o.Port), "--dtype", "float32", "--enforce-eager",
		"--max-model-len", number(int64(o.Context), 1024), "--max-num-seqs", number(int64(o.Sequences), 8),
		"--kv-cache-memory-bytes", number(o.CacheBytes, 64<<20), "--distributed-executor-backend", "uni",
		"--disable-uvicorn-access-log"}
	if o.Transfer != nil {
		config, err := json.Marshal(o.Transfer)
		if err != nil {
			return nil, err
		}
		args = append(args, "--kv-transfer-config", string(config))
	}
	return append(args, o.Args...), nil
}

// serves waits until the server says that it is healthy.
func (e *Engine) serves(ctx context.Context) error {
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL+"/health", nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(r); err == nil {
			_ = resp.Body.Close() // empty
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-e.gone:
			return fmt.Errorf("engine %s ended at its start", e.Name)
		case <-ctx.Done():
			return fmt.Errorf("engine %s does not serve: %w", e.Name, ctx.Err())
		case <-time.After(lookEvery):
		}
	}
}

// Gone is closed once the engine has ended.
func (e *Engine) Gone() <-chan struct{} { return e.gone }

// signal reaches the server and its engine core.
func (e *Engine) signal(s syscall.Signal) error {
	select {
	case <-e.gone:
		return nil
	default:
	}
	if err := syscall.Kill(-e.PID, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("engine %s: %w", e.Name, err)
	}
	return nil
}

// Kill ends the engine without a word, and waits for its end.
func (e *Engine) Kill() error {
	if err := e.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-e.gone
	return nil
}

// Pause stops the engine where it is; Resume lets it go on.
func (e *Engine) Pause() error  { return e.signal(syscall.SIGSTOP) }
func (e *Engine) Resume() error { return e.signal(syscall.SIGCONT) }
