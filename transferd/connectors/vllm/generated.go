package vllm

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	enginev1 "github.com/surehand/surehand/contracts/gen/surehand/engine/v1"
	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/internal/flagpage"
	"github.com/surehand/surehand/transferd/internal/socket"
)

const schemaPath = "surehand_vllm/schema.binpb"

// Generated gives the files that are made from the contracts, by their paths
// below this folder.
func Generated() (map[string][]byte, error) {
	schema, err := schema()
	if err != nil {
		return nil, err
	}
	golden, err := goldens()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		schemaPath:                   schema,
		"surehand_vllm/constants.py": constants(),
		"tests/golden/golden.json":   golden,
	}, nil
}

// schema is every message of both sockets, without comments.
func schema() ([]byte, error) {
	set := &descriptorpb.FileDescriptorSet{}
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(f))
	}
	add(enginev1.File_surehand_engine_v1_connector_proto)
	add(transferv1.File_surehand_transfer_v1_socket_proto)
	return proto.MarshalOptions{Deterministic: true}.Marshal(set)
}

// constants is a Python module.
func constants() []byte {
	var b strings.Builder
	b.WriteString("\"\"\"Made from the contracts by transferd/connectors/vllm/cmd/goldens. Do not edit.\"\"\"\n\n")
	for _, c := range []struct {
		name  string
		value int64
	}{
		{"MAX_FRAME_BYTES", socket.MaxFrameBytes}, {"MAX_FIRST_BYTES", socket.MaxFirstBytes},
		{"SLOT_BYTES", flagpage.SlotBytes}, {"MAX_FLAG_SLOTS", flagpage.MaxSlots},
		{"SLOT_VISIBLE", int64(flagpage.Visible)},
		{"MAX_ID_BYTES", handoff.MaxIDBytes}, {"MAX_NAME_BYTES", handoff.MaxNameBytes},
		{"MAX_PIECES", handoff.MaxPieces}, {"MAX_PIECE_BYTES", handoff.MaxPieceBytes},
		{"MAX_GROUPS", handoff.MaxGroups}, {"MAX_PROMPT_TOKENS", handoff.MaxPromptTokens},
		{"LEASE_MIN_MS", handoff.LeaseMin.Milliseconds()}, {"LEASE_MAX_MS", handoff.LeaseMax.Milliseconds()},
		{"LEASE_DEFAULT_MS", handoff.LeaseDefault.Milliseconds()}, {"OVERLAP_TOKENS", handoff.OverlapTokens},
	} {
		fmt.Fprintf(&b, "%s = %d\n", c.name, c.value)
	}
	b.WriteString("\n# What the caller of a refused operation may do, by the refusal's code.\nADVICE = {\n")
	for _, c := range handoff.Codes() {
		fmt.Fprintf(&b, "    %q: %q,\n", c.String(), c.Advice().String())
	}
	b.WriteString("}\n")
	return []byte(b.String())
}
