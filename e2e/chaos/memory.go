package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// A segment's bytes change behind everybody's back. The sealed digests, or the
// engine's own check of what it was given, must notice: a wrong token is the one
// thing that may not come of it.
func init() {
	register(Fault{Name: "corrupt", About: "every page of the engine's KV segment is altered at rest", Victims: []string{"p1", "d1"},
		Expect: map[string]Expected{"*": "EEEEEELW"}, Shuns: true,
		Inject: func(_ context.Context, s *Stage, v string) (Heal, error) {
			return healed, Corrupt(s.Process(v).PID(), v)
		}})
}

// page of memory: a byte in each is enough.
const page = 4096

// Corrupt alters a byte in each page of an engine's KV segment, also of one that
// is stopped.
func Corrupt(pid int, engine string) (err error) {
	segments, err := mapped(pid, "memfd:surehand-"+engine+" ")
	if err != nil {
		return err
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, memory.Close()) }()
	one := make([]byte, 1)
	for _, s := range segments {
		for at := s[0]; at < s[1]; at += page {
			if _, err := memory.ReadAt(one, at); err != nil {
				return err
			}
			one[0] ^= 0xff
			if _, err := memory.WriteAt(one, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// mapped are the address ranges of what a process mapped under a name.
func mapped(pid int, name string) (ranges [][2]int64, err error) {
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, maps.Close()) }()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		line := lines.Text()
		if !strings.Contains(line+" ", name) {
			continue
		}
		var from, to int64
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		ranges = append(ranges, [2]int64{from, to})
	}
	if len(ranges) == 0 {
		return nil, errors.New("the engine has no segment mapped")
	}
	return ranges, nil
}
