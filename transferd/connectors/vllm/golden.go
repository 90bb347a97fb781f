package vllm

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash/crc32"

	"google.golang.org/protobuf/proto"

	enginev1 "github.com/surehand/surehand/contracts/gen/surehand/engine/v1"
	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/layout"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/transferd/internal/flagpage"
)

var example = handoff.Plan{
	Attempt:    handoff.Attempt{Handoff: "h-golden", Epoch: 3, Nonce: 0xfedcba9876543210},
	P:          handoff.Seat{Engine: "p1", Node: "tp1", Incarnation: 7},
	D:          handoff.Seat{Engine: "d1", Node: "td1", Incarnation: 1 << 60},
	Reader:     handoff.Reader{Process: "127.0.0.1:8081", Incarnation: 9, Number: 2},
	BodyDigest: handoff.Digest{1, 2, 3},
}

var exampleLayout = layout.Layout{BlockTokens: 128, Parallel: 1, Caches: []layout.Cache{{Name: "kv0", Layers: 4, KVHeads: 2, HeadDim: 32,
	DType: "float32", Packing: layout.PackedKV, Order: layout.HND, Interior: "vllm/0.32.0/cpu"}}}

var exampleDescribed = layout.Described{Layout: exampleLayout, Model: layout.Model{Heads: []uint32{2}}}

var exampleTenant = handoff.Digest{4, 5, 6}

// frame is one message with its length before it, as it goes over a socket.
type frame struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Hex  string `json:"hex"`
}

// slot is the image of one slot of a flag page.
type slot struct {
	Hex     string `json:"hex"`
	Epoch   uint32 `json:"epoch"`
	Nonce   uint64 `json:"nonce"`
	Visible bool   `json:"visible"`
}

type checksum struct {
	Hex   string `json:"hex"`
	Value uint32 `json:"value"`
}

type golden struct {
	Frames      []frame       `json:"frames"`
	Slots       []slot        `json:"slots"`
	Checksums   []checksum    `json:"checksums"`
	Layout      layout.Layout `json:"layout"`
	Fingerprint string        `json:"fingerprint"`
	Described   string        `json:"described"`
	Shape       string        `json:"shape"` // of 300 tokens under revision "golden"
	RequestPlan string        `json:"request_plan"`
}

func goldens() ([]byte, error) {
	g := golden{Layout: exampleLayout}
	fingerprint := exampleLayout.Fingerprint()
	g.Fingerprint = hex.EncodeToString(fingerprint[:])
	described, err := rpc.EncodeLayout(exampleDescribed)
	if err != nil {
		return nil, err
	}
	g.Described = hex.EncodeToString(described)
	for _, m := range messages() {
		b, err := framed(m.message)
		if err != nil {
			return nil, err
		}
		g.Frames = append(g.Frames, frame{m.name, string(m.message.ProtoReflect().Descriptor().FullName()), hex.EncodeToString(b)})
	}
	for _, state := range []flagpage.State{flagpage.Open, flagpage.Visible, flagpage.Over} {
		memory := make([]byte, flagpage.SlotBytes)
		page := flagpage.New(memory, 1)
		if err := page.Write(0, flagpage.Entry{Plan: example, Generation: 5, Incarnation: example.D.Incarnation}); err != nil {
			return nil, err
		}
		page.Set(0, state)
		g.Slots = append(g.Slots, slot{hex.EncodeToString(memory), uint32(example.Attempt.Epoch), uint64(example.Attempt.Nonce), page.IsVisible(0, example.Attempt)})
	}
	for _, b := range [][]byte{{}, []byte("123456789"), make([]byte, 4096)} {
		g.Checksums = append(g.Checksums, checksum{hex.EncodeToString(b), crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))})
	}
	shape, err := marshal(rpc.Shape(exampleLayout.Shape("golden", 300)))
	if err != nil {
		return nil, err
	}
	g.Shape = hex.EncodeToString(shape)
	plan, err := marshal(&enginev1.RequestPlan{Plan: rpc.Plan(example), Role: enginev1.Role_ROLE_DECODE, LeaseMs: 2000, Tenant: exampleTenant[:]})
	if err != nil {
		return nil, err
	}
	g.RequestPlan = base64.StdEncoding.EncodeToString(plan)
	b, err := json.MarshalIndent(g, "", " ")
	return append(b, '\n'), err
}

func marshal(m proto.Message) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

func framed(m proto.Message) ([]byte, error) {
	b, err := marshal(m)
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...), err
}

type named struct {
	name    string
	message proto.Message
}

// messages are one of each that the connector sends or takes.
func messages() []named {
	a := rpc.Attempt(example.Attempt)
	fingerprint := exampleLayout.Fingerprint()
	described, _ := rpc.EncodeLayout(exampleDescribed) // goldens refuses one that cannot be encoded
	shape := rpc.Shape(exampleLayout.Shape("golden", 300))
	offsets := []uint64{0, 65536, 1 << 33, 42, 7, 8, 9, 10, 11, 12, 13, 14}
	token := rpc.Token(handoff.Token{Attempt: example.Attempt, Node: "td1", Incarnation: example.D.Incarnation, Generation: 5})
	engine := func(id uint64, m *transferv1.EngineMessage) *transferv1.EngineMessage { m.Id = id; return m }
	return []named{
		{"attach", engine(1, &transferv1.EngineMessage{Body: &transferv1.EngineMessage_Attach{Attach: &transferv1.Attach{
			Engine: "d1", SegmentBytes: 1 << 26, FlagSlots: 128, Revision: "golden", Layout: fingerprint[:], Described: rpc.Layout(exampleDescribed)}}})},
		{"open target", engine(2, &transferv1.EngineMessage{Body: &transferv1.EngineMessage_OpenTarget{OpenTarget: &transferv1.OpenTarget{
			Plan: rpc.Plan(example), Shape: shape, Offsets: offsets, FlagSlot: 3, LeaseMs: 2000, Held: []uint32{0, 3, 6, 9}}}})},
		{"open source", engine(3, &transferv1.EngineMessage{Body: &transferv1.EngineMessage_OpenSource{OpenSource: &transferv1.OpenSource{
			Plan: rpc.Plan(example), Shape: shape, Offsets: offsets, LeaseMs: 2000, Blocks: []uint32{4, 5, 6}, Tenant: exampleTenant[:]}}})},
		{"announce", &transferv1.EngineMessage{Body: &transferv1.EngineMessage_Announce{Announce: &transferv1.Announce{
			Attempt: a, Pieces: []uint32{0, 1}, Digests: []uint32{0xffffffff, 7}}}}},
		{"seal", engine(4, &transferv1.EngineMessage{Body: &transferv1.EngineMessage_Seal{Seal: &transferv1.Seal{Attempt: a}}})},
		{"close source", engine(5, &transferv1.EngineMessage{Body: &transferv1.EngineMessage_CloseSource{CloseSource: &transferv1.CloseSource{
			Attempt: a, Code: handoff.CodeCancelled.String()}}})},
		{"finish target", engine(6, &transferv1.EngineMessage{Body: &transferv1.EngineMessage_FinishTarget{FinishTarget: &transferv1.FinishTarget{Attempt: a}}})},
		{"freed", engine(7, &transferv1.EngineMessage{Body: &transferv1.EngineMessage_Freed{Freed: &transferv1.Freed{Attempt: a, Source: true}}})},
		{"failure", &transferv1.DaemonMessage{Id: 2, Body: &transferv1.DaemonMessage_Failure{Failure: rpc.Failure(handoff.Errorf(handoff.CodeCapacity, "full"))}}},
		{"attached", &transferv1.DaemonMessage{Id: 1, Body: &transferv1.DaemonMessage_Attached{Attached: &transferv1.Attached{
			Node: "td1", Incarnation: 1 << 60, PeerAddress: "127.0.0.1:9002", Adopted: []*transferv1.Attempt{a}}}}},
		{"target opened", &transferv1.DaemonMessage{Id: 2, Body: &transferv1.DaemonMessage_TargetOpened{TargetOpened: &transferv1.TargetOpened{
			Token: token, State: transferv1.TargetState_TARGET_STATE_OPENED}}}},
		{"source opened", &transferv1.DaemonMessage{Id: 3, Body: &transferv1.DaemonMessage_SourceOpened{SourceOpened: &transferv1.SourceOpened{
			Capability: []byte{1, 2, 3}, Grant: 9, State: transferv1.SourceState_SOURCE_STATE_OPENED}}}},
		{"done", &transferv1.DaemonMessage{Id: 4, Body: &transferv1.DaemonMessage_Done{Done: &transferv1.Done{}}}},
		{"committed", &transferv1.DaemonMessage{Body: &transferv1.DaemonMessage_TargetEvent{TargetEvent: &transferv1.TargetEvent{
			Attempt: a, State: transferv1.TargetState_TARGET_STATE_COMMITTED}}}},
		{"target drained", &transferv1.DaemonMessage{Body: &transferv1.DaemonMessage_TargetEvent{TargetEvent: &transferv1.TargetEvent{
			Attempt: a, State: transferv1.TargetState_TARGET_STATE_CLOSED, Drained: true, Cause: handoff.CodeLease.String()}}}},
		{"source drained", &transferv1.DaemonMessage{Body: &transferv1.DaemonMessage_SourceEvent{SourceEvent: &transferv1.SourceEvent{Attempt: a, Drained: true}}}},
		{"hello", &enginev1.ConnectorMessage{Body: &enginev1.ConnectorMessage_Hello{Hello: &enginev1.ConnectorHello{
			Engine: "d1", Revision: "golden", Layout: fingerprint[:], BlockTokens: 128, Blocks: 256, MaxTokens: 1024, Version: "v", Model: "tiny", Described: described}}}},
		{"target", &enginev1.ConnectorMessage{Body: &enginev1.ConnectorMessage_Target{Target: &enginev1.ConnectorTarget{
			Attempt: a, Token: token, PromptTokens: 300, CachedTokens: 128, Blocks: 3}}}},
		{"wake", &enginev1.FrontMessage{Body: &enginev1.FrontMessage_Wake{Wake: &enginev1.FrontWake{}}}},
		{"drop", &enginev1.FrontMessage{Body: &enginev1.FrontMessage_Drop{Drop: &enginev1.FrontDrop{Attempt: a}}}},
	}
}
