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
	"github.com/surehand/surehand/contracts/layout"
	"github.com/surehand/surehand/transferd/client"
	"github.com/surehand/surehand/transferd/daemon"
)

// Rows that claims are made of; copyRow is the limit that every row is held against.
const (
	copyRow      = "copy, scattered"
	iperfRow     = "iperf3, one stream"
	iperfRenoRow = "iperf3, one stream, unpaced"
	memfdRow     = "memfd"
	processRow   = "process memory"
	tcpRow       = "tcp"
)

// Levels of checking; crc32c is what a transfer gets that asks for nothing.
const (
	unchecked = ""
	checked   = " + crc32c"
)

// rereads is the daemon that reads what landed once more.
const rereads = "td-rereads"

// lease is long: nothing of a bench shall end because the machine is loud.
const lease = time.Minute

// rig is the daemons of two hosts, in plaintext and with mutual TLS, and engines
// with every kind of memory, all in this process.
type rig struct {
	end     // how P cuts it; D does alike, at other places
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

// end is how one side cuts what is moved, and where each piece lies.
type end struct {
	shape     handoff.Shape
	offsets   []uint64
	described *layout.Described // nil: the other side has the same layout
}

type host struct {
	daemon  *daemon.Daemon
	socket  string
	control *client.Control
}

func newRig(ctx context.Context, dir string, shape handoff.Shape) (r *rig, err error) {
	r = &rig{end: end{shape: shape}, hosts: map[string]*host{}}
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
	}
	r.pieces, r.digests = r.sums(r.end)
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
	for _, node := range []string{"tp", "td", rereads, "tp-secure", "td-secure"} {
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
	cfg := daemon.Config{Node: handoff.NodeID(node), Data: data, EngineSocket: h.socket, Control: "unix://" + filepath.Join(data, "control.sock"), Peer: "127.0.0.1:0", Lease: lease, TLS: secure, Unchecked: true, Reread: node == rereads}
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

// sums are the pieces of P and their checksums.
func (r *rig) sums(e end) (pieces, digests []uint32) {
	for i, at := range e.offsets {
		p, _ := e.shape.Place(uint32(i))
		pieces = append(pieces, uint32(i))
		digests = append(digests, client.Checksum(r.source.Bytes()[at:at+uint64(p.Bytes)]))
	}
	return pieces, digests
}

// fragmentation says in how many pieces the KV lies, and in how many runs of memory.
func (r *rig) fragmentation() string {
	runs := func(offsets []uint64) (n int) {
		next := ^uint64(0)
		for i, at := range offsets {
			if at != next {
				n++
			}
			p, _ := r.shape.Place(uint32(i))
			next = at + uint64(p.Bytes)
		}
		return n
	}
	return fmt.Sprintf("%d pieces; %d runs at P, %d at D", r.shape.Pieces(), runs(r.offsets), runs(r.to))
}

func (r *rig) attach(h *host, id handoff.EngineID, m *client.Memory, e end) (*client.Engine, error) {
	engine, err := client.Attach(context.Background(), client.EngineConfig{Socket: h.socket, Engine: id, Revision: e.shape.Revision, Layout: e.shape.Layout,
		Described: e.described, Segment: m, FlagSlots: 2})
	if err != nil {
		return nil, err
	}
	r.closers = append(r.closers, engine.Close)
	return engine, nil
}

// lane makes the rows of a pair of engines; one that cannot attach is skipped.
func (r *rig) lane(name, from, to string, source, target *client.Memory, checks ...string) []row {
	p, d := r.end, r.end
	d.offsets = r.to
	return r.between(name, pair{ph: r.hosts[from], dh: r.hosts[to], source: p, target: d, pieces: r.pieces, digests: r.digests}, source, target, checks...)
}

func (r *rig) between(name string, x pair, source, target *client.Memory, checks ...string) (rows []row) {
	x.r = r
	x.pid = handoff.EngineID(fmt.Sprintf("p%d", len(r.closers)))
	x.did = handoff.EngineID(fmt.Sprintf("d%d", len(r.closers)))
	var err error
	if x.p, err = r.attach(x.ph, x.pid, source, x.source); err == nil {
		x.d, err = r.attach(x.dh, x.did, target, x.target)
	}
	if err != nil {
		r.skipped = append(r.skipped, fmt.Sprintf("%s: skipped: %s", name, err))
		return nil
	}
	for _, check := range checks {
		own := x
		own.plain = check == unchecked
		made := row{name: name + check, run: own.handoff}
		if x.source.described == nil {
			made.one = own.one
		}
		rows = append(rows, made)
	}
	return rows
}

// reshard is the row of a model whose P has four ranks and whose D has one: every
// vector of a head goes to a place of its own, so the pieces are staged and scattered.
func (r *rig) reshard() []row {
	cut := func(ranks uint32) end {
		d := layout.Described{Layout: layout.Layout{BlockTokens: 16, Parallel: ranks, Caches: []layout.Cache{
			{Name: "kv", Layers: 32, KVHeads: 8 / ranks, HeadDim: 128, DType: "bfloat16", Packing: layout.ApartKV, Order: layout.NHD}}},
			Model: layout.Model{Heads: []uint32{8}}}
		tokens := max(uint32(r.shape.Bytes()/llamaTokenBytes)/16, 1) * 16
		e := end{shape: d.Layout.Whole("bench", tokens), described: &d}
		e.offsets, _ = scatter(e.shape)
		return e
	}
	p, d := cut(4), cut(1)
	pieces, digests := r.sums(p)
	return r.between("tcp + crc32c, 4 ranks to 1", pair{ph: r.hosts["tp"], dh: r.hosts["td"], source: p, target: d, pieces: pieces, digests: digests}, r.source, r.target, "")
}

// llamaTokenBytes is the KV of one token of Llama-3-8B: 32 layers, K and V, 8 heads of 128, bfloat16.
const llamaTokenBytes = 32 * 2 * 8 * 128 * 2

// rows are the limits, then our lanes.
func (r *rig) rows(table string) []row {
	rows := []row{{name: copyRow, run: r.copy}, {name: "copy + crc32c, scattered", run: r.copyChecked}}
	for _, limit := range []struct{ name, control string }{{iperfRow, ""}, {iperfRenoRow, "reno"}} {
		iperf, why := newIperf(r.shape.Bytes(), limit.control)
		if iperf != nil {
			rows = append(rows, row{name: limit.name, run: iperf.run})
		} else {
			r.skipped = append(r.skipped, limit.name+": skipped: "+why)
		}
	}
	rows = append(rows, r.lane(memfdRow, "tp", "tp", r.source, r.target, unchecked, checked)...)
	rows = append(rows, r.lane(processRow, "tp", "tp", r.plain, r.target, unchecked, checked)...)
	rows = append(rows, r.lane(tcpRow, "tp", "td", r.source, r.target, unchecked, checked)...)
	rows = append(rows, r.lane("tcp of process memory", "tp", "td", r.plain, r.target, checked)...)
	rows = append(rows, r.lane("tcp, read once more", "tp", rereads, r.source, r.target, checked)...)
	rows = append(rows, r.lane("tcp + mutual tls", "tp-secure", "td-secure", r.source, r.target, checked)...)
	if table == "llama-3-8b" {
		rows = append(rows, r.reshard()...)
	}
	return rows
}
