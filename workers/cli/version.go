package cli

import (
	"errors"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/surehand/surehand/workers/orchestrator"
)

// versionFlags say which version of which deployment a worker is.
type versionFlags struct{ name, build, current string }

func (v *versionFlags) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&v.name, "deployment-name", "", "Temporal worker deployment: each handoff stays on workers of the version that began it\n(default none: every worker goes on with every handoff)")
	f.StringVar(&v.build, "build-id", "", "of this version (default: the revision that this program was built from)")
	f.StringVar(&v.current, "make-current", string(orchestrator.CurrentFirst), "when handoffs begin on this version: first (the deployment has none yet), always, or never (an operator does)")
}

func (v *versionFlags) version() (orchestrator.Version, error) {
	if v.name == "" {
		if v.build != "" {
			return orchestrator.Version{}, errors.New("--build-id needs --deployment-name")
		}
		return orchestrator.Version{}, nil
	}
	build := v.build
	if build == "" {
		build = revision()
	}
	if build == "" {
		return orchestrator.Version{}, errors.New("this program does not know its revision: give --build-id")
	}
	return orchestrator.Version{Deployment: v.name, Build: build, Current: orchestrator.Current(v.current)}, nil
}

// revision is what Go's linker knows; a tree with changes of its own is another
// version each time, which only its builder can name.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var rev string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			rev = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			return ""
		}
	}
	return rev[:min(12, len(rev))]
}
