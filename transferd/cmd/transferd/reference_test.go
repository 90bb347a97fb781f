package main

import (
	"flag"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/surehand/surehand/transferd/cmd/flagtable"
)

var update = flag.Bool("update", false, "write docs/configuration.md anew")

func TestTheConfigurationReferenceIsThatOfTheDaemon(t *testing.T) {
	root := command()
	root.Flags().Lookup("tcp-streams").DefValue = "one for two cores, at most four" // depends on the machine
	variable := func(_ *cobra.Command, f *pflag.Flag) string {
		return "SUREHAND_TRANSFERD_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
	}
	text := flagtable.Command(root, variable)
	for _, c := range root.Commands() {
		if c.Name() != "help" && c.Name() != "completion" {
			text += flagtable.Command(c, variable)
		}
	}
	if err := flagtable.Keep("../../../docs/configuration.md", "transferd", text, *update); err != nil {
		t.Error(err)
	}
}
