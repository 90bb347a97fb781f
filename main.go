// surehand hands a request from prefill to decode and never drops it.
// Everything it can be told is in workers/cli.
package main

import (
	"os"

	"github.com/surehand/surehand/workers/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
