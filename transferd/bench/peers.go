package bench

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// The peers' data planes run from their wheels, as they come, in a Python of their
// own: the task installs it, and without it their rows are skipped.

//go:embed peers/peer.py
var peerScript []byte

// peerKinds are the settings that are measured: of NIXL its default, the best for
// one host that was found (shared memory and cma, no progress thread) and TCP.
var peerKinds = []struct {
	row, kind string
	env       []string
}{
	{nixlRow, "nixl-shared", []string{"UCX_TLS=posix,cma,self"}},
	{nixlDefaultRow, "nixl", nil},
	{nixlTCPRow, "nixl-tcp", []string{"UCX_TLS=tcp,self"}},
	{mooncakeRow, "mooncake", []string{"MC_TCP_BIND_ADDRESS=127.0.0.1", "GLOG_minloglevel=3", "MC_LOG_LEVEL=ERROR"}},
}

const (
	nixlRow        = "NIXL 1.5.1, shared memory"
	nixlDefaultRow = "NIXL 1.5.1, default"
	nixlTCPRow     = "NIXL 1.5.1, tcp"
	mooncakeRow    = "Mooncake TE 0.3.13, tcp"

	peerStart = 2 * time.Minute // to import, register, connect and read everything once
)

// peer is one pair of processes that reads the rig's blocks.
type peer struct {
	r      *rig
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr *strings.Builder
}

// peers are the rows of what could be started.
func (r *rig) peers(ctx context.Context, cfg Config) (rows []row) {
	for _, k := range peerKinds {
		if !strings.Contains(k.row, cfg.Only) {
			continue
		}
		p, err := r.startPeer(ctx, cfg, k.kind, k.env)
		if err != nil {
			r.skipped = append(r.skipped, fmt.Sprintf("%s: skipped: %s", k.row, err))
			continue
		}
		rows = append(rows, row{name: k.row, run: func(context.Context) (sample, error) { return p.ask("all") },
			one: func(context.Context) (sample, error) { return p.ask("one") }})
	}
	return rows
}

func (r *rig) startPeer(ctx context.Context, cfg Config, kind string, env []string) (p *peer, err error) {
	if _, err := os.Stat(cfg.Python); err != nil {
		return nil, errors.New("its wheels are not installed (task peers:transfer)")
	}
	script := filepath.Join(cfg.Dir, "peer.py")
	if err := os.WriteFile(script, peerScript, 0o600); err != nil {
		return nil, err
	}
	p = &peer{r: r, cmd: exec.CommandContext(ctx, cfg.Python, script, kind), stderr: new(strings.Builder)}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = p.stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	stuck := time.AfterFunc(peerStart, func() { _ = p.cmd.Process.Kill() }) // the read below then fails
	defer stuck.Stop()
	if err := p.greet(); err != nil {
		return nil, errors.Join(err, p.close())
	}
	r.closers = append(r.closers, p.close)
	return p, nil
}

func (p *peer) greet() error {
	blocks := struct {
		Size    int      `json:"size"`
		From    []uint64 `json:"from"`
		To      []uint64 `json:"to"`
		Lengths []uint32 `json:"lengths"`
	}{len(p.r.source.Bytes()), p.r.offsets, p.r.to, nil}
	for i := range p.r.pieces {
		place, _ := p.r.shape.Place(uint32(i))
		blocks.Lengths = append(blocks.Lengths, place.Bytes)
	}
	if err := json.NewEncoder(p.in).Encode(blocks); err != nil {
		return err
	}
	_, err := p.line("ready")
	return err
}

// line skips what libraries say beside it.
func (p *peer) line(prefix string) (string, error) {
	for {
		l, err := p.out.ReadString('\n')
		if err != nil {
			said := strings.TrimSpace(p.stderr.String())
			return "", fmt.Errorf("it ended: %s", said[max(0, len(said)-200):])
		}
		if strings.HasPrefix(l, prefix) {
			return l, nil
		}
	}
}

func (p *peer) ask(what string) (sample, error) {
	if _, err := fmt.Fprintln(p.in, what); err != nil {
		return sample{}, err
	}
	l, err := p.line("{")
	if err != nil {
		return sample{}, err
	}
	var took struct{ Wire, CPU float64 }
	if err := json.Unmarshal([]byte(l), &took); err != nil {
		return sample{}, err
	}
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	return sample{bytes: p.r.shape.Bytes(), wire: seconds(took.Wire), cpu: seconds(took.CPU)}, nil
}

func (p *peer) close() error {
	err := p.in.Close()
	stuck := time.AfterFunc(5*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer stuck.Stop()
	if werr := p.cmd.Wait(); werr != nil && p.cmd.ProcessState == nil {
		err = errors.Join(err, werr) // how it ended is of no interest, that it did is
	}
	return err
}
