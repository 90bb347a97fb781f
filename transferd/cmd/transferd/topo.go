package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/surehand/surehand/transferd/topo"
)

func topoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "topo",
		Short: "Shows this host's NUMA nodes, GPUs and NICs, and which NICs are near which GPU",
		Long: "Shows what of this host moves bytes, from sysfs; builds with the tag nvml add the names,\n" +
			"memory and links of GPUs. What is absent is listed as such and is no error.",
		Example: "  transferd topo",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), topo.Read("/").Picture())
			return err
		},
	}
}
