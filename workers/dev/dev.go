package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

const (
	servedTimeout = 30 * time.Second // from all children up to a ready gateway
	servedPoll    = 20 * time.Millisecond
	modelsMost    = 1 << 20 // bytes of an answer
	signalEcho    = 500 * time.Millisecond
)

// Streams are where dev writes: progress for people, and the ready line and
// changes, for people or as JSON.
type Streams struct{ Out, Progress io.Writer }

// Ready is the line that says everything is up.
type Ready struct {
	Ready    bool    `json:"ready"`
	HTTP     string  `json:"http"`
	GRPC     string  `json:"grpc"`
	UI       string  `json:"ui,omitempty"`
	Temporal string  `json:"temporal"`
	Metrics  string  `json:"metrics"`
	Redis    string  `json:"redis"`
	Data     string  `json:"data"`
	Model    string  `json:"model"`
	PID      int     `json:"pid"`
	Seconds  float64 `json:"seconds"` // from the start of the first child
	Children []Child `json:"children"`
	curl     string
}

// Child as the ready line tells it.
type Child struct {
	Name      string            `json:"name"`
	PID       int               `json:"pid"`
	Addresses map[string]string `json:"addresses"`
	Log       string            `json:"log"`
}

// Run brings everything up, says so, and stays until a signal or ctx's end.
// The first signal drains, the second one kills.
func Run(ctx context.Context, c Config, s Streams, signals <-chan os.Signal) (err error) {
	if c.Engine == "" {
		c.Engine = EngineReference
	}
	if err := c.check(); err != nil {
		return err
	}
	if c.Data, err = filepath.Abs(c.Data); err != nil {
		return err
	}
	logs := filepath.Join(c.Data, "logs")
	if err := os.MkdirAll(logs, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	lock, err := lockData(c.Data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()

	starting, ends := untilSignal(ctx, signals)
	defer ends()
	p, err := prepare(starting, c, s.Progress)
	if err != nil {
		return err
	}
	tell := newTeller(c.JSON, s.Out)
	f, err := newFleet(p.specs, logs, tell.change)
	if err != nil {
		return errors.Join(err, p.close())
	}
	err = bringUp(starting, c, p, f, logs, tell)
	if err == nil {
		<-starting.Done()
	} else if errors.Is(context.Cause(starting), errSignalled) {
		err = nil // asked to stop before it was up
	}
	ends() // from here on signals are the drain's
	return errors.Join(err, drain(f, s.Progress, signals), p.close())
}

// errSignalled is why the work of Run ends in good order.
var errSignalled = errors.New("a signal asked to stop")

// untilSignal is ctx, ended also by the first signal. After ends it takes none.
func untilSignal(ctx context.Context, signals <-chan os.Signal) (until context.Context, ends func()) {
	until, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-signals:
			cancel(errSignalled)
		case <-until.Done():
		}
	}()
	return until, func() {
		cancel(nil)
		<-done
	}
}

// prepare finds or builds the binaries and writes the plan.
func prepare(ctx context.Context, c Config, progress io.Writer) (*plan, error) {
	where := places{beside: filepath.Dir(c.Self), source: sourceRoot(c.Sources), cache: c.Cache, out: progress}
	with := programs{self: c.Self}
	var err error
	if with.transferd, err = where.find(ctx, transferd); err != nil {
		return nil, err
	}
	if c.Temporal == "" {
		if with.temporal, err = where.find(ctx, temporal); err != nil {
			return nil, fmt.Errorf("%w; or give --temporal host:port of a real one", err)
		}
	}
	if with.engine, err = kinds[c.Engine](ctx, c, where); err != nil {
		return nil, err
	}
	p, err := newPlan(c, with)
	if err != nil {
		return nil, err
	}
	for _, moved := range p.ports.moved {
		fmt.Fprintln(progress, moved)
	}
	return p, nil
}

// bringUp starts the children and waits until a request could be served.
func bringUp(ctx context.Context, c Config, p *plan, f *fleet, logs string, tell *teller) error {
	began := time.Now()
	if err := f.start(ctx); err != nil {
		return err
	}
	model, err := served(ctx, p.http)
	if err != nil {
		return err
	}
	r := Ready{Ready: true, HTTP: "http://" + p.http + "/v1", GRPC: p.grpc, Temporal: p.temporal, Metrics: "http://" + p.http + "/metrics",
		Redis: p.redis, Data: c.Data, Model: model, PID: os.Getpid(), Seconds: time.Since(began).Seconds(), curl: p.curl(model, p.prompt)}
	if c.Redis != "" {
		r.Redis = "" // it may hold a password, and who gave it knows it
	}
	if p.ui != "" {
		r.UI = "http://" + p.ui + "/"
	}
	pids := f.pids()
	for _, spec := range p.specs {
		r.Children = append(r.Children, Child{Name: spec.Name, PID: pids[spec.Name], Addresses: spec.Addresses, Log: filepath.Join(logs, spec.Name+".log")})
	}
	return tell.ready(r)
}

// served polls the gateway until it is ready, and gives the name of a model.
func served(ctx context.Context, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, servedTimeout)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true}
	client := &http.Client{Transport: transport}
	var last error
	for {
		model, err := firstModel(ctx, client, address)
		if err == nil {
			return model, nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-time.After(servedPoll):
		case <-ctx.Done():
			return "", fmt.Errorf("all processes run, but the gateway is not ready: %w", errors.Join(last, context.Cause(ctx)))
		}
	}
}

func firstModel(ctx context.Context, client *http.Client, address string) (string, error) {
	if _, err := get(ctx, client, "http://"+address+"/readyz"); err != nil {
		return "", err
	}
	body, err := get(ctx, client, "http://"+address+"/v1/models")
	if err != nil {
		return "", err
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &list); err != nil || len(list.Data) == 0 {
		return "", errors.Join(errors.New("no model is served yet"), err)
	}
	return list.Data[0].ID, nil
}

func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, modelsMost))
	err = errors.Join(err, res.Body.Close())
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s %s", url, res.Status, body)
	}
	return body, err
}

// drain stops the children in order; one more signal kills what is left. One
// that comes at once is the first one's echo: a wrapper passed on what the
// terminal had sent to the whole group.
func drain(f *fleet, progress io.Writer, signals <-chan os.Signal) error {
	fmt.Fprintln(progress, "stopping: gateway, engines, transferds, store, Temporal (once more to kill)")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stopped, began := make(chan error, 1), time.Now()
	go func() { stopped <- f.stop(ctx) }()
	for {
		select {
		case err := <-stopped:
			return err
		case <-signals:
			if time.Since(began) < signalEcho {
				continue
			}
			fmt.Fprintln(progress, "killing")
			cancel()
		}
	}
}

// close gives the ports back and removes what the plan made outside the data directory.
func (p *plan) close() error {
	err := p.ports.close()
	if p.folder != "" {
		err = errors.Join(err, os.RemoveAll(p.folder))
	}
	return err
}
