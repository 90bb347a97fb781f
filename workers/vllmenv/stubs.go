package vllmenv

import (
	"context"
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// system are the libraries that every Linux has.
var system = regexp.MustCompile(`^(ld-linux|lib(c|m|dl|pthread|rt|gcc_s|gomp|util)\.so|libstdc\+\+)`)

// unversioned says in which library a symbol is that names no version: torch
// loads with every symbol bound, so each must be somewhere.
var unversioned = []struct{ prefix, library string }{
	{"nccl", "libnccl."}, {"pnccl", "libnccl."}, {"cudnn", "libcudnn."}, {"nvshmem", "libnvshmem_host."}, {"cusparseLt", "libcusparseLt."},
	{"cuFile", "libcufile."}, {"nvrtc", "libnvrtc."}, {"curand", "libcurand."}, {"cufft", "libcufft."}, {"cu", "libcuda."},
}

// library is a stand-in: symbols by version, "" for none.
type library map[string]map[string]bool

// standIns are the libraries of a GPU that the libraries in dir want, each with
// the symbols they want of it. No function of them is ever called on a machine
// without a GPU; torch asks first, and is told that there is none.
func standIns(dir string) (map[string]library, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.so*"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("no libraries in %s: %w", dir, err)
	}
	there, defined := map[string]bool{}, map[string]bool{}
	wanted, out := map[elf.ImportedSymbol]bool{}, map[string]library{}
	for _, p := range paths {
		there[filepath.Base(p)] = true
	}
	for _, p := range paths {
		if err := scan(p, there, defined, wanted, out); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(p), err)
		}
	}
	names := slices.Collect(maps.Keys(out))
	for s := range wanted {
		if name := home(s, names); name != "" && !defined[s.Name] {
			if out[name][s.Version] == nil {
				out[name][s.Version] = map[string]bool{}
			}
			out[name][s.Version][s.Name] = true
		}
	}
	return out, nil
}

// scan reads what one library defines and wants.
func scan(path string, there, defined map[string]bool, wanted map[elf.ImportedSymbol]bool, out map[string]library) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	needed, err := f.ImportedLibraries()
	if err != nil {
		return err
	}
	for _, n := range needed {
		if !there[n] && !system.MatchString(n) && out[n] == nil {
			out[n] = library{}
		}
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return err
	}
	for _, s := range symbols {
		switch bind := elf.ST_BIND(s.Info); {
		case s.Section != elf.SHN_UNDEF:
			defined[s.Name] = true
		case bind == elf.STB_GLOBAL:
			wanted[elf.ImportedSymbol{Name: s.Name, Version: s.Version, Library: s.Library}] = true
		}
	}
	return nil
}

// home is the stand-in that a symbol belongs to; "": none.
func home(s elf.ImportedSymbol, names []string) string {
	if s.Library != "" {
		if slices.Contains(names, s.Library) {
			return s.Library
		}
		return ""
	}
	for _, u := range unversioned {
		if strings.HasPrefix(s.Name, u.prefix) {
			if i := slices.IndexFunc(names, func(n string) bool { return strings.HasPrefix(n, u.library) }); i >= 0 {
				return names[i]
			}
		}
	}
	return ""
}

// build compiles a stand-in. Every function answers an error code.
func (l library) build(ctx context.Context, dir, name string) error {
	var source, script strings.Builder
	seen := map[string]bool{}
	for _, version := range slices.Sorted(maps.Keys(l)) {
		symbols := slices.Sorted(maps.Keys(l[version]))
		for _, s := range symbols {
			if !seen[s] {
				fmt.Fprintf(&source, "long %s(void){return 100;}\n", s)
			}
			seen[s] = true
		}
		if version != "" {
			fmt.Fprintf(&script, "%s { global: %s; };\n", version, strings.Join(symbols, "; "))
		}
	}
	if len(seen) == 0 {
		source.WriteString("int surehand_stand_in;\n")
	}
	c, m := filepath.Join(dir, name+".c"), filepath.Join(dir, name+".map")
	args := []string{"-w", "-shared", "-fPIC", "-O0", "-fno-builtin", "-Wl,-soname," + name, "-o", filepath.Join(dir, name), c}
	if script.Len() > 0 {
		args = append(args, "-Wl,--version-script="+m)
	}
	if err := os.WriteFile(c, []byte(source.String()), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(m, []byte(script.String()), 0o600); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "gcc", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("gcc for %s: %w\n%s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}
