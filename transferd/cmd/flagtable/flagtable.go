// Package flagtable writes the reference of a program's flags from the flags
// themselves, for docs/configuration.md; commands' tests keep that file current.
package flagtable

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Command is one section: what a command is for, and its own flags.
func Command(c *cobra.Command, env func(*cobra.Command, *pflag.Flag) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n%s.\n\n", c.CommandPath(), strings.TrimSuffix(c.Short, "."))
	if t := Flags(c.LocalNonPersistentFlags(), func(f *pflag.Flag) string { return env(c, f) }); t != "" {
		b.WriteString(t + "\n")
	}
	return b.String()
}

// Flags is a table of flags; empty: there are none to show.
func Flags(set *pflag.FlagSet, env func(*pflag.Flag) string) string {
	var b strings.Builder
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || f.Name == "version" {
			return
		}
		if b.Len() == 0 {
			b.WriteString("| flag and key | environment | default | |\n|---|---|---|---|\n")
		}
		def := ""
		if f.DefValue != "" && f.DefValue != "0s" && f.DefValue != "[]" {
			def = "`" + f.DefValue + "`"
		}
		fmt.Fprintf(&b, "| `--%s` %s | `%s` | %s | %s |\n", f.Name, f.Value.Type(), env(f), def, cell(f.Usage))
	})
	return b.String()
}

func cell(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\n", " "), "|", "\\|")
}

// Keep compares what stands between a file's marks with text. With update it is
// written instead.
func Keep(path, mark, text string, update bool) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin, end := "<!-- begin "+mark+": generated, task docs -->\n", "<!-- end "+mark+" -->"
	before, rest, ok := strings.Cut(string(raw), begin)
	stands, after, closed := strings.Cut(rest, end)
	switch {
	case !ok || !closed:
		return fmt.Errorf("%s has no marks of %s", path, mark)
	case stands == text:
		return nil
	case !update:
		return fmt.Errorf("%s: %s is stale: run `task docs`", path, mark)
	}
	return os.WriteFile(path, []byte(before+begin+text+end+after), 0o644)
}
