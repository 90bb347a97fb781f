package install

import (
	"bytes"
	"context"
	"os/exec"
	"strings"

	"github.com/surehand/surehand/contracts/handoff"
)

// client is a package client: ways to call it, the first that is here is taken.
// Each is told where to put what it fetches, and what.
type client struct {
	name string
	ways []way
}

type way struct {
	program string
	args    []string
}

var (
	npm = client{"npm", []way{{"npm", []string{"pack", "--silent", "--pack-destination"}}}}
	pip = client{"pip", []way{
		{"pip", pipDownload}, {"pip3", pipDownload},
		{"python3", append([]string{"-m", "pip"}, pipDownload...)},
		{"uvx", append([]string{"pip"}, pipDownload...)}}}
	pipDownload = []string{"download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "--dest"}
)

// outputMost of a client that failed is shown.
const outputMost = 2000

// fetch has the client put packages into a folder.
func fetch(ctx context.Context, into string, c client, packages ...string) error {
	var why []string
	for _, w := range c.ways {
		path, err := exec.LookPath(w.program)
		if err != nil {
			why = append(why, w.program+" is not on PATH")
			continue
		}
		cmd := exec.CommandContext(ctx, path, append(append(append([]string{}, w.args...), into), packages...)...)
		cmd.Dir = into
		out, err := cmd.CombinedOutput()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return handoff.Errorf(handoff.CodeUnavailable, "fetch %s: %s", packages[0], ctx.Err())
		}
		out = bytes.TrimSpace(out)
		why = append(why, w.program+": "+err.Error()+": "+string(out[max(0, len(out)-outputMost):]))
	}
	return handoff.Errorf(handoff.CodeUnavailable, "fetch %s with %s: %s", strings.Join(packages, ", "), c.name, strings.Join(why, "; "))
}
