package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/surehand/surehand/transferd/internal/native"
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
			_, err := fmt.Fprint(cmd.OutOrStdout(), host().Picture())
			return err
		},
	}
}

// cudaLibrary is the driver that is looked for unless another is named.
const cudaLibrary = "libcuda.so.1"

// host is what this machine has, and what this build can use of it.
func host() topo.Host {
	h := topo.Read("/")
	if _, err := native.LoadCUDA(cudaLibrary); err != nil {
		h.Absent = append(h.Absent, "device memory: "+err.Error())
	}
	return h
}
