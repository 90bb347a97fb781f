package main

import (
	"errors"
	"os"
	"path/filepath"
	"runtime/pprof"

	"github.com/spf13/cobra"

	"github.com/surehand/surehand/transferd/bench"
)

// peersPython is where task peers:transfer installs them.
func peersPython() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "" // no home: no peers
	}
	return filepath.Join(cache, "surehand", "peers", "bin", "python")
}

func benchCommand() *cobra.Command {
	var cfg bench.Config
	var profile string
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measures this host's lanes beside their limits, in one run",
		Long: "Starts daemons and engines in this process, on loopback, and moves the same scattered blocks by every\n" +
			"lane, once a round, beside a scattered copy, iperf3, NIXL and Mooncake. CPU seconds count: they hold still on a\n" +
			"loud machine. For each claim that is made of this data plane its two rows are then measured in turns, and it is\n" +
			"printed whether the median of the pairs' ratios holds, with the quartiles. It takes some six minutes; on a loud\n" +
			"machine there are fewer samples rather than a longer run.",
		Example: "  transferd bench\n  transferd bench --tables 16KiB,64KiB --pairs 41\n  transferd bench --tables 64KiB --only tcp --profile cpu.out",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if cfg.Rounds < 1 || cfg.Pairs < 1 || cfg.Bytes < 1<<20 {
				return errors.New("--rounds and --pairs must be 1 or more, --bytes 1 MiB or more")
			}
			if cfg.Dir, err = os.MkdirTemp("", "transferd-bench-"); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, os.RemoveAll(cfg.Dir)) }()
			if profile != "" {
				f, err := os.Create(profile)
				if err != nil {
					return err
				}
				defer f.Close()
				if err := pprof.StartCPUProfile(f); err != nil {
					return err
				}
				defer pprof.StopCPUProfile()
			}
			cfg.Out = cmd.OutOrStdout()
			cfg.Absent = host().Absent
			return bench.Run(cmd.Context(), cfg)
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&cfg.Bytes, "bytes", 256<<20, "moved by one sample")
	f.StringSliceVar(&cfg.Tables, "tables", bench.Tables, "block tables")
	f.IntVar(&cfg.Rounds, "rounds", 3, "samples of each row")
	f.IntVar(&cfg.Pairs, "pairs", 21, "samples of the two rows of each claim, one straight after the other")
	f.StringVar(&cfg.Only, "only", "", "only rows whose name has it")
	f.StringVar(&cfg.Python, "python", peersPython(), "a Python with the wheels of NIXL and Mooncake (task peers:transfer)")
	f.StringVar(&profile, "profile", "", "file for a CPU profile")
	return cmd
}
