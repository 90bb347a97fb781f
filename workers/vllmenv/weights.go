package vllmenv

import (
	"context"
	"io"
	"os"
	"path/filepath"
)

// Weights makes a folder that vLLM loads of a GGUF file of Llama's architecture,
// once, with progress on out; sum names the file's content. Idempotent; several
// processes may ask at once.
func (e Env) Weights(ctx context.Context, name, file, sum string, out io.Writer) (folder string, err error) {
	unlock, err := lock(ctx, e.Dir+".lock", out)
	if err != nil {
		return "", err
	}
	defer unlock()
	folder = filepath.Join(e.Dir, name)
	s := step{name, name + " in the form that vLLM reads", uv + requirements + weights + sum, func(ctx context.Context, out io.Writer) error {
		script := filepath.Join(e.Dir, "weights.py")
		if err := os.WriteFile(script, []byte(weights), 0o644); err != nil {
			return err
		}
		return e.tell(ctx, out, e.Python, script, file, folder)
	}}
	return folder, s.see(ctx, e, out)
}
