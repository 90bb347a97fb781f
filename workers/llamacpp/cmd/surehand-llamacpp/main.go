// surehand-llamacpp is surehand whose engine runs llama.cpp. It is a program of
// its own because it loads foreign code: what decides never does.
package main

import (
	"io"
	"os"

	"github.com/spf13/pflag"

	"github.com/surehand/surehand/workers/cli"
	"github.com/surehand/surehand/workers/llamacpp"
	"github.com/surehand/surehand/workers/refengine"
)

const long = `An engine that runs llama.cpp, as P or D: real weights, and for a state the
bytes that the library writes for a sequence.

libllama is loaded from a folder at run time; surehand dev --engine llamacpp
installs one, with weights.`

const example = `  surehand-llamacpp engine --role decode --id d1 --libraries DIR --weights FILE.gguf --model my-model \
      --transferd-socket /tmp/d1.sock --transferd-control 127.0.0.1:9001 --redis redis://127.0.0.1:6379`

func main() {
	var o llamacpp.Options
	w := cli.Work{Short: "llama.cpp engine, for prefill or decode", Long: long, Example: example,
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&o.Libraries, "libraries", "", "folder of libllama and libggml")
			f.StringVar(&o.Weights, "weights", "", "GGUF file")
			f.StringVar(&o.Template, "chat-template", "", "name of a chat template that libllama knows (default: that of the weights)")
			f.IntVar(&o.Context, "context", llamacpp.DefaultContext, "tokens of prompt and answer together")
			f.IntVar(&o.Threads, "threads", 1, "of the compute")
		},
		Open: func(c *refengine.Config) (io.Closer, error) { return llamacpp.Configure(c, o) },
	}
	os.Exit(cli.MainWith(w, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
