package tidy

import (
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	enginev1 "github.com/surehand/surehand/contracts/gen/surehand/engine/v1"
	submitv1 "github.com/surehand/surehand/contracts/gen/surehand/submit/v1"
	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
)

func TestGeneratedCodeSaysSo(t *testing.T) {
	goFiles(t, ".go", func(path string, src []byte) {
		isGenerated := strings.Contains(string(src[:min(len(src), 400)]), "DO NOT EDIT")
		if inGen := strings.HasPrefix(path, "contracts/gen/"); inGen != isGenerated {
			t.Errorf("%s: in contracts/gen %v, generated %v", path, inGen, isGenerated)
		}
	})
}

// Generated code belongs to its source: every message with its fields and
// numbers, every enum value and every method of the .proto files, and no others.
func TestGeneratedCodeIsCurrent(t *testing.T) {
	for _, f := range []protoreflect.FileDescriptor{
		transferv1.File_surehand_transfer_v1_types_proto, transferv1.File_surehand_transfer_v1_transfer_proto, transferv1.File_surehand_transfer_v1_socket_proto,
		enginev1.File_surehand_engine_v1_engine_proto, submitv1.File_surehand_submit_v1_submit_proto,
	} {
		want := stated(read(t, "contracts/proto/"+f.Path()))
		got := map[string]bool{}
		messages(f.Messages(), got)
		enums(f.Enums(), got)
		for i := range f.Services().Len() {
			for j := range f.Services().Get(i).Methods().Len() {
				got["rpc "+string(f.Services().Get(i).Methods().Get(j).Name())] = true
			}
		}
		for k := range want {
			if !got[k] {
				t.Errorf("%s states %q and the generated code has it not: generate again", f.Path(), k)
			}
		}
		for k := range got {
			if !want[k] {
				t.Errorf("the generated code has %q and %s does not state it: generate again", k, f.Path())
			}
		}
	}
}

func messages(ms protoreflect.MessageDescriptors, out map[string]bool) {
	for i := range ms.Len() {
		m := ms.Get(i)
		if m.IsMapEntry() {
			continue
		}
		out["message "+string(m.Name())] = true
		for j := range m.Fields().Len() {
			out["field "+string(m.Fields().Get(j).Name())+"="+numeral(int(m.Fields().Get(j).Number()))] = true
		}
		messages(m.Messages(), out)
		enums(m.Enums(), out)
	}
}

func enums(es protoreflect.EnumDescriptors, out map[string]bool) {
	for i := range es.Len() {
		for j := range es.Get(i).Values().Len() {
			v := es.Get(i).Values().Get(j)
			out["field "+string(v.Name())+"="+numeral(int(v.Number()))] = true
		}
	}
}

func numeral(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return numeral(n/10) + numeral(n%10)
}

var (
	comment = regexp.MustCompile(`//[^\n]*`)
	message = regexp.MustCompile(`\bmessage (\w+)`)
	rpc     = regexp.MustCompile(`\brpc (\w+)`)
	number  = regexp.MustCompile(`(\w+) = (\d+)( \[[^\]]*\])?;`)
)

// stated reads what a .proto file states, without a parser: messages, methods
// and numbered names.
func stated(proto string) map[string]bool {
	proto = comment.ReplaceAllString(proto, "")
	out := map[string]bool{}
	for _, m := range message.FindAllStringSubmatch(proto, -1) {
		out["message "+m[1]] = true
	}
	for _, m := range rpc.FindAllStringSubmatch(proto, -1) {
		out["rpc "+m[1]] = true
	}
	for _, m := range number.FindAllStringSubmatch(proto, -1) {
		out["field "+m[1]+"="+m[2]] = true
	}
	return out
}
