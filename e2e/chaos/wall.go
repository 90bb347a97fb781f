package chaos

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// rule drops, or answers with a reset, TCP packets to or from a port.
type rule struct {
	to, from uint16 // one of them
	reset    bool
	percent  uint32 // of the packets; 0: all
}

// Wall is the packet filter of the fleet's network namespace.
type Wall struct {
	table *nftables.Table
	chain *nftables.Chain
}

// NewWall makes an empty filter on the input hook of this process's namespace,
// which must be one of its own.
func NewWall() (*Wall, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, err
	}
	w := &Wall{table: c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "surehand-chaos"})}
	w.chain = c.AddChain(&nftables.Chain{Name: "in", Table: w.table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput,
		Priority: nftables.ChainPriorityFilter})
	if err := c.Flush(); err != nil {
		return nil, fmt.Errorf("packet filter: %w", err)
	}
	return w, nil
}

// put adds rules.
func (w *Wall) put(rules []rule) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	for _, r := range rules {
		c.AddRule(&nftables.Rule{Table: w.table, Chain: w.chain, Exprs: r.exprs()})
	}
	return c.Flush()
}

// open takes every rule away.
func (w *Wall) open() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	c.FlushChain(w.chain)
	return c.Flush()
}

// Offsets of the ports in a TCP header.
const (
	sourcePort = 0
	targetPort = 2
)

func (r rule) exprs() []expr.Any {
	offset, port := uint32(targetPort), r.to
	if r.from != 0 {
		offset, port = sourcePort, r.from
	}
	out := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(port)},
	}
	if r.percent > 0 {
		out = append(out, &expr.Numgen{Register: 1, Modulus: 100, Type: unix.NFT_NG_RANDOM},
			// The number is the host's, comparisons are of bytes in order.
			&expr.Byteorder{SourceRegister: 1, DestRegister: 1, Op: expr.ByteorderHton, Len: 4, Size: 4},
			&expr.Cmp{Op: expr.CmpOpLt, Register: 1, Data: binary.BigEndian.AppendUint32(nil, r.percent)})
	}
	if r.reset {
		return append(out, &expr.Reject{Type: unix.NFT_REJECT_TCP_RST})
	}
	return append(out, &expr.Verdict{Kind: expr.VerdictDrop})
}

func portOf(address string) (uint16, error) {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, errors.Join(fmt.Errorf("address %q has no port", address), err)
	}
	return uint16(n), nil
}
