package cli

import (
	"flag"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/surehand/surehand/transferd/cmd/flagtable"
)

var update = flag.Bool("update", false, "write docs/configuration.md anew")

func TestTheConfigurationReferenceIsThatOfTheCommands(t *testing.T) {
	root := newRoot(newEngine(nil))
	root.InitDefaultHelpFlag()
	variable := func(c *cobra.Command, f *pflag.Flag) string {
		return envPrefix + "_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
	}
	var b strings.Builder
	b.WriteString("### Every command\n\n" + flagtable.Flags(root.PersistentFlags(), func(f *pflag.Flag) string { return variable(root, f) }) + "\n")
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if sub.Hidden || sub.Name() == "help" || sub.Name() == "completion" {
				continue
			}
			b.WriteString(flagtable.Command(sub, variable))
			walk(sub)
		}
	}
	walk(root)
	if err := flagtable.Keep("../../docs/configuration.md", "surehand", b.String(), *update); err != nil {
		t.Error(err)
	}
}
