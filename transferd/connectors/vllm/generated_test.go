package vllm

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/surehand/surehand/transferd/internal/socket"
)

func TestTheGeneratedFilesAreThoseOfTheContracts(t *testing.T) {
	files, err := Generated()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if path == schemaPath {
			stillTrue(t, got, want)
			continue
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the contracts say: go run ./transferd/connectors/vllm/cmd/goldens", path)
		}
	}
}

// stillTrue checks that every field that the Python side knows is today's: the
// contracts may grow fields that it does not know yet, and take none away.
func stillTrue(t *testing.T, known, today []byte) {
	t.Helper()
	fields := func(b []byte) map[string]string {
		var set descriptorpb.FileDescriptorSet
		if err := proto.Unmarshal(b, &set); err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, f := range set.File {
			for _, m := range f.MessageType {
				for _, d := range m.Field {
					out[f.GetPackage()+"."+m.GetName()+"."+d.GetName()] = fmt.Sprint(d.GetNumber(), d.GetType(), d.GetLabel(), d.GetTypeName())
				}
			}
		}
		return out
	}
	now := fields(today)
	for name, is := range fields(known) {
		if now[name] != is {
			t.Errorf("%s was %s and is %q now: go run ./transferd/connectors/vllm/cmd/goldens", name, is, now[name])
		}
	}
}

// The goldens are framed here by hand; the daemon's own code must frame alike.
func TestTheGoldenFramesAreThoseOfTheEngineSocket(t *testing.T) {
	text, err := os.ReadFile("tests/golden/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	for i, m := range messages() {
		raw, err := net.DialUnix("unix", nil, listener.Addr().(*net.UnixAddr))
		if err != nil {
			t.Fatal(err)
		}
		peer, err := listener.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		sender := socket.New(raw)
		if err := sender.Send(time.Now().Add(time.Second), m.message); err != nil {
			t.Fatal(err)
		}
		if err := sender.Close(); err != nil {
			t.Fatal(err)
		}
		sent, err := io.ReadAll(peer)
		if err != nil {
			t.Fatal(err)
		}
		if err := peer.Close(); err != nil {
			t.Fatal(err)
		}
		if g.Frames[i].Name != m.name || g.Frames[i].Hex != hex.EncodeToString(sent) {
			t.Errorf("%s: sent %x, golden %s %s", m.name, sent, g.Frames[i].Name, g.Frames[i].Hex)
		}
	}
}
