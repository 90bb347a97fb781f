// Package planted holds the museum's bugs as changes of this repository's own text:
// each is what another system really had. The test that the museum's table names
// beside a row (transferd/README.md, e2e/MUSEUM.md) has to fail with its bug and pass
// without; go run ./e2e/cmd/mutants -museum shows it for every row.
package planted

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Edit replaces From, which stands once in File, by To.
type Edit struct{ File, From, To string }

// Bug is one row's.
type Bug struct {
	Row   string
	About string // what is wrong with it in place
	Edits []Edit
	More  string // declarations at the end of the first edit's file
}

// Files gives the text of every file that b changes, by its path under root.
func (b Bug) Files(root string) (map[string]string, error) {
	out := map[string]string{}
	for _, e := range b.Edits {
		text, known := out[e.File]
		if !known {
			read, err := os.ReadFile(filepath.Join(root, e.File))
			if err != nil {
				return nil, err
			}
			text = string(read)
		}
		if n := strings.Count(text, e.From); n != 1 {
			return nil, fmt.Errorf("%s: %q stands %d times in %s, want once", b.Row, e.From, n, e.File)
		}
		out[e.File] = strings.Replace(text, e.From, e.To, 1)
	}
	if b.More != "" {
		out[b.Edits[0].File] += "\n" + b.More + "\n"
	}
	return out, nil
}
