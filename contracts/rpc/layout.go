package rpc

import (
	"google.golang.org/protobuf/proto"

	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/layout"
	"github.com/surehand/surehand/contracts/wire"
)

// MaxLayoutBytes bounds an encoded layout.
const MaxLayoutBytes = wire.MaxLayoutBytes

// Layout to the wire.
func Layout(d layout.Described) *transferv1.LayoutDescription {
	l := d.Layout
	m := &transferv1.LayoutDescription{BlockTokens: l.BlockTokens, Parallel: l.Parallel, Heads: d.Model.Heads, Replicated: d.Model.Replicated}
	for _, c := range l.Caches {
		m.Caches = append(m.Caches, &transferv1.Cache{Name: c.Name, Layers: c.Layers, KvHeads: c.KVHeads, HeadDim: c.HeadDim, Dtype: string(c.DType),
			Packing: string(c.Packing), Order: string(c.Order), Interior: c.Interior, Window: c.Window})
	}
	for _, i := range l.Items {
		m.Items = append(m.Items, &transferv1.Item{Class: i.Class, Bytes: i.Bytes})
	}
	return m
}

// FromLayout reads a layout; its lengths are bounded before anything is allocated.
func FromLayout(m *transferv1.LayoutDescription) (layout.Described, error) {
	if len(m.GetCaches()) > handoff.MaxGroups || len(m.GetItems()) > handoff.MaxItems || len(m.GetHeads()) > handoff.MaxGroups || len(m.GetReplicated()) > handoff.MaxItems {
		return layout.Described{}, handoff.Errorf(handoff.CodeTooLarge, "layout of %d caches, %d items, %d head counts, %d replicated classes",
			len(m.GetCaches()), len(m.GetItems()), len(m.GetHeads()), len(m.GetReplicated()))
	}
	d := layout.Described{Layout: layout.Layout{BlockTokens: m.GetBlockTokens(), Parallel: m.GetParallel()},
		Model: layout.Model{Heads: m.GetHeads(), Replicated: m.GetReplicated()}}
	for _, c := range m.GetCaches() {
		d.Layout.Caches = append(d.Layout.Caches, layout.Cache{Name: c.GetName(), Layers: c.GetLayers(), KVHeads: c.GetKvHeads(), HeadDim: c.GetHeadDim(),
			DType: layout.DType(c.GetDtype()), Packing: layout.Packing(c.GetPacking()), Order: layout.Order(c.GetOrder()), Interior: c.GetInterior(), Window: c.GetWindow()})
	}
	for _, i := range m.GetItems() {
		d.Layout.Items = append(d.Layout.Items, layout.Item{Class: i.GetClass(), Bytes: i.GetBytes()})
	}
	return d, d.Layout.Validate()
}

// EncodeLayout is a layout as the frames between daemons carry it.
func EncodeLayout(d layout.Described) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(Layout(d))
	switch {
	case err != nil:
		return nil, handoff.Errorf(handoff.CodeInvalid, "layout: %s", err)
	case len(b) > MaxLayoutBytes:
		return nil, handoff.Errorf(handoff.CodeTooLarge, "a layout of %d bytes, limit %d", len(b), MaxLayoutBytes)
	}
	return b, nil
}

// DecodeLayout is its inverse.
func DecodeLayout(b []byte) (layout.Described, error) {
	m := new(transferv1.LayoutDescription)
	if len(b) > MaxLayoutBytes {
		return layout.Described{}, handoff.Errorf(handoff.CodeTooLarge, "a layout of %d bytes, limit %d", len(b), MaxLayoutBytes)
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return layout.Described{}, handoff.Errorf(handoff.CodeInvalid, "layout: %s", err)
	}
	return FromLayout(m)
}
