package reference

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	serviceLine = regexp.MustCompile(`^service (\w+) \{`)
	rpcLine     = regexp.MustCompile(`^\s+rpc (\w+)\((stream )?([\w.]+)\) returns \((stream )?([\w.]+)\);`)
	typeLine    = regexp.MustCompile(`^(message|enum) (\w+) \{(\})?`)
	fieldLine   = regexp.MustCompile(`^\s+((?:repeated |optional )?[\w.<>, ]+?) (\w+) = (\d+);\s*(?://\s*(.*))?$`)
	valueLine   = regexp.MustCompile(`^\s+(\w+) = (\d+);\s*(?://\s*(.*))?$`)
)

// render writes one proto as tables; what is not understood is an error, so
// that nothing of an API is left out.
func render(b *strings.Builder, path string) error {
	src, err := os.ReadFile(at("contracts/proto/" + path))
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "### %s\n\n", path)
	var said []string
	depth, table := 0, false
	rows := func(head string) {
		if !table {
			b.WriteString(head)
			table = true
		}
	}
	for n, line := range strings.Split(string(src), "\n") {
		trimmed := strings.TrimSpace(line)
		text := strings.Join(said, " ")
		switch {
		case strings.HasPrefix(trimmed, "//"):
			said = append(said, strings.TrimSpace(strings.TrimPrefix(trimmed, "//")))
			continue
		case trimmed == "" && depth == 0 && text != "": // of the whole file
			b.WriteString(text + "\n\n")
		case trimmed == "", strings.HasPrefix(trimmed, "syntax"), strings.HasPrefix(trimmed, "package"), strings.HasPrefix(trimmed, "import"):
		case serviceLine.MatchString(line):
			fmt.Fprintf(b, "#### service %s\n\n", serviceLine.FindStringSubmatch(line)[1])
			if text != "" {
				b.WriteString(text + "\n\n")
			}
			depth, table = 1, false
		case rpcLine.MatchString(line):
			m := rpcLine.FindStringSubmatch(line)
			rows("| call | takes | gives | |\n|---|---|---|---|\n")
			fmt.Fprintf(b, "| `%s` | %s%s | %s%s | %s |\n", m[1], m[2], m[3], m[4], m[5], text)
		case typeLine.MatchString(line):
			m := typeLine.FindStringSubmatch(line)
			fmt.Fprintf(b, "#### %s %s\n\n", m[1], m[2])
			if text != "" {
				b.WriteString(text + "\n\n")
			}
			depth, table = 1, false
			if m[3] != "" {
				depth = 0
			}
		case strings.HasPrefix(trimmed, "oneof "):
			depth++
			said = append(said, "one of:")
			continue
		case fieldLine.MatchString(line):
			m := fieldLine.FindStringSubmatch(line)
			rows("| field | number | type | |\n|---|---|---|---|\n")
			fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", m[2], m[3], m[1], strings.TrimSpace(text+" "+m[4]))
		case valueLine.MatchString(line):
			m := valueLine.FindStringSubmatch(line)
			rows("| value | number | | |\n|---|---|---|---|\n")
			fmt.Fprintf(b, "| `%s` | %s | | %s |\n", m[1], m[2], strings.TrimSpace(text+" "+m[3]))
		case trimmed == "}":
			if depth--; depth == 0 {
				b.WriteString("\n")
			}
		default:
			return fmt.Errorf("%s:%d: what is %q?", path, n+1, trimmed)
		}
		said = nil
	}
	return nil
}

func TestTheReferenceOfGRPCIsThatOfTheProtos(t *testing.T) {
	var b strings.Builder
	for _, path := range []string{"surehand/submit/v1/submit.proto", "surehand/operate/v1/operate.proto", "surehand/engine/v1/engine.proto",
		"surehand/transfer/v1/transfer.proto", "surehand/transfer/v1/types.proto", "surehand/transfer/v1/socket.proto", "surehand/engine/v1/connector.proto"} {
		if err := render(&b, path); err != nil {
			t.Error(err)
		}
	}
	keep(t, "docs/api.md", "grpc", b.String())
}
