package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
	"github.com/surehand/surehand/transferd/daemon"
)

// Rows that claims are made of; copyRow is the limit that every row is held against.
const (
	copyRow    = "copy, scattered"
	iperfRow   = "iperf3, one stream"
	memfdRow   = "memfd"
	processRow = "process memory"
	tcpRow     = "tcp"
)

// Levels of checking; crc32c is what a transfer gets that asks for nothing.
const (
	unchecked = ""
	checked   = " + crc32c"
)

// lease is long: nothing of a bench shall end because the machine is loud.
const lease = time.Minute

// rig is the daemons of two hosts, in plaintext and with mutual TLS, and engines
// with every kind of memory, all in this process.
type rig struct {
	shape   handoff.Shape
	offsets []uint64 // of each piece, scattered, at P; at D another order
	to      []uint64
	pieces  []uint32
	digests []uint32
	source  *client.Memory // and its bytes in plain memory
	plain   *client.Memory
	target  *client.Memory
	hosts   map[string]*host
	handed  int
	skipped []string
	closers []func() error
}

type host struct {
	daemon  *daemon.Daemon
	socket  string
	control *client.Control
}

func newRig(ctx context.Context, dir string, shape handoff.Shape) (r *rig, err error) {
	r = &rig{shape: shape, hosts: map[string]*host{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	var size int
	r.offsets, size = scatter(shape)
	if err := r.memory(size); err != nil {
		return nil, err
	}
	n := len(r.offsets)
	r.to = make([]uint64, n)
	for i := range n {
		r.to[i] = r.offsets[i]
		p, _ := shape.Place(uint32(i))
		r.pieces = append(r.pieces, uint32(i))
		r.digests = append(r.digests, client.Checksum(r.source.Bytes()[r.offsets[i]:r.offsets[i]+uint64(p.Bytes)]))
	}
	if g := shape.Groups; len(g) == 1 && len(shape.Items) == 0 { // pieces of one size: D's order is another
		for i := range n {
			r.to[i] = r.offsets[(i*7+3)%n]
		}
		if n%7 == 0 {
			copy(r.to, r.offsets)
		}
	}
	configs, err := certificates("tp-secure", "td-secure")
	if err != nil {
		return nil, err
	}
	for _, node := range []string{"tp", "td", "tp-secure", "td-secure"} {
		if err := r.start(dir, node, configs[node]); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *rig) memory(size int) (err error) {
	if r.source, err = client.NewMemory("bench-source", size); err != nil {
		return err
	}
	r.closers = append(r.closers, r.source.Close)
	if r.target, err = client.NewMemory("bench-target", size); err != nil {
		return err
	}
	r.closers = append(r.closers, r.target.Close)
	if r.plain, err = client.NewPlainMemory(size); err != nil {
		return err
	}
	r.closers = append(r.closers, r.plain.Close)
	x := uint64(1)
	b := r.source.Bytes()
	for i := range b { // no two blocks are equal
		x = x*6364136223846793005 + 1442695040888963407
		b[i] = byte(x >> 56)
	}
	copy(r.plain.Bytes(), b)
	return nil
}

func (r *rig) start(dir, node string, secure *tls.Config) error {
	data := filepath.Join(dir, node)
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	h := &host{socket: filepath.Join(data, "engine.sock")}
	cfg := daemon.Config{Node: handoff.NodeID(node), Data: data, EngineSocket: h.socket, Control: "unix://" + filepath.Join(data, "control.sock"), Peer: "127.0.0.1:0", Lease: lease, TLS: secure, Unchecked: true}
	var options []client.Option
	if secure != nil {
		cfg.Control = "127.0.0.1:0"
		caller := secure.Clone()
		caller.ServerName = node
		options = append(options, client.WithTLS(caller))
	}
	var err error
	if h.daemon, err = daemon.Start(cfg); err != nil {
		return err
	}
	r.closers = append(r.closers, h.daemon.Close)
	if h.control, err = client.Dial(h.daemon.ControlAddress(), options...); err != nil {
		return err
	}
	r.closers = append(r.closers, h.control.Close)
	r.hosts[node] = h
	return nil
}

// close undoes in the order of making, backwards.
func (r *rig) close() error {
	var err error
	for i := len(r.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, r.closers[i]())
	}
	r.closers = nil
	return err
}

func (r *rig) attach(h *host, id handoff.EngineID, m *client.Memory) (*client.Engine, error) {
	e, err := client.Attach(context.Background(), client.EngineConfig{Socket: h.socket, Engine: id, Revision: r.shape.Revision, Layout: r.shape.Layout, Segment: m, FlagSlots: 2})
	if err != nil {
		return nil, err
	}
	r.closers = append(r.closers, e.Close)
	return e, nil
}

// lane makes the row of a pair of engines; one that cannot attach is skipped.
func (r *rig) lane(name, from, to string, source, target *client.Memory, checks ...string) (rows []row) {
	tag := handoff.EngineID(fmt.Sprintf("e%d", len(r.closers)))
	p, err := r.attach(r.hosts[from], "p-"+tag, source)
	if err == nil {
		var d *client.Engine
		if d, err = r.attach(r.hosts[to], "d-"+tag, target); err == nil {
			for _, check := range checks {
				pair := &pair{r, p, d, "p-" + tag, "d-" + tag, r.hosts[from], r.hosts[to], check == unchecked}
				rows = append(rows, row{name: name + check, run: pair.handoff, one: pair.one})
			}
			return rows
		}
	}
	r.skipped = append(r.skipped, fmt.Sprintf("%s: skipped: %s", name, err))
	return nil
}

// rows are the limits, then our lanes.
func (r *rig) rows() []row {
	rows := []row{{name: copyRow, run: r.copy}, {name: "copy + crc32c, scattered", run: r.copyChecked}}
	iperf, why := newIperf(r.shape.Bytes())
	if iperf != nil {
		rows = append(rows, row{name: iperfRow, run: iperf.run})
	} else {
		r.skipped = append(r.skipped, "iperf3: skipped: "+why)
	}
	rows = append(rows, r.lane(memfdRow, "tp", "tp", r.source, r.target, unchecked, checked)...)
	rows = append(rows, r.lane(processRow, "tp", "tp", r.plain, r.target, unchecked, checked)...)
	rows = append(rows, r.lane(tcpRow, "tp", "td", r.source, r.target, unchecked, checked)...)
	rows = append(rows, r.lane("tcp of process memory", "tp", "td", r.plain, r.target, checked)...)
	return append(rows, r.lane("tcp + mutual tls", "tp-secure", "td-secure", r.source, r.target, checked)...)
}
