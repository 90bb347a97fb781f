package vllmenv

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/surehand/surehand/transferd/connectors/vllm"
)

// extra is what the connector imports and vLLM does not, what its tests need, and
// what reads the weights of a GGUF file.
var extra = []string{"google-crc32c==1.9.0", "pytest==9.2.0", "pluggy==1.7.0", "iniconfig==2.3.1", "gguf==0.19.0"}

func (e Env) extra(ctx context.Context, out io.Writer) error {
	client := filepath.Join(e.Dir, "boot", "bin", "uv")
	args := []string{"pip", "install", "--quiet", "--python", e.Python, "--no-deps", "--only-binary", ":all:", "--target", filepath.Join(e.Dir, "extra")}
	return e.tell(ctx, out, client, append(args, extra...)...)
}

// connector puts the connector of this very program into a folder of its own
// content's name, so that engines of another program keep theirs.
func (e Env) connector() (path string, err error) {
	sum := sha256.New()
	err = fs.WalkDir(vllm.Package, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		b, err := vllm.Package.ReadFile(name)
		sum.Write([]byte(name + "\x00"))
		sum.Write(b)
		return err
	})
	if err != nil {
		return "", err
	}
	home := filepath.Join(e.Dir, "connector")
	dir := filepath.Join(home, hex.EncodeToString(sum.Sum(nil))[:16])
	path = dir + string(os.PathListSeparator) + filepath.Join(e.Dir, "extra")
	if _, err := os.Stat(dir); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		return "", err
	}
	half, err := os.MkdirTemp(home, ".half-")
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.Chmod(half, 0o755), os.CopyFS(half, vllm.Package)); err != nil {
		return "", errors.Join(err, os.RemoveAll(half))
	}
	return path, os.Rename(half, dir)
}
