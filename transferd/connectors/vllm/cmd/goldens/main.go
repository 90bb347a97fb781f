// Command goldens writes the files of the Python package that are made from the
// contracts: the messages' schema, the constants and the golden frames.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/surehand/surehand/transferd/connectors/vllm"
)

const home = "transferd/connectors/vllm" // run from the repository's root

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write() error {
	files, err := vllm.Generated()
	if err != nil {
		return err
	}
	for path, content := range files {
		if err := os.WriteFile(filepath.Join(home, path), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
