package fleet

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Listener is a socket on which a process of the fleet takes connections.
type Listener struct {
	Process string
	Network string // tcp or unix
	Address string
}

// Listeners are all of them, as the kernel tells: not what a process says of itself.
func (f *Fleet) Listeners() (out []Listener, err error) {
	for _, p := range f.order {
		pid := p.PID()
		if pid == 0 {
			continue
		}
		sockets, err := socketsOf(pid)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		for _, table := range []struct {
			name, network string
			read          func([]string) (address, inode string, ok bool)
		}{{"tcp", "tcp", listening}, {"tcp6", "tcp", listening}, {"unix", "unix", accepting}} {
			file, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", pid, table.name))
			if err != nil {
				return nil, err
			}
			lines := bufio.NewScanner(file)
			for lines.Scan() {
				if address, inode, ok := table.read(strings.Fields(lines.Text())); ok && sockets[inode] {
					out = append(out, Listener{p.name, table.network, address})
				}
			}
			if err := lines.Err(); err != nil {
				return nil, err
			}
			if err := file.Close(); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// socketsOf are the inodes of a process's sockets.
func socketsOf(pid int) (map[string]bool, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		if inode, ok := strings.CutPrefix(to, "socket:["); ok {
			out[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return out, nil
}

// listening reads a line of /proc/net/tcp or tcp6.
func listening(fields []string) (address, inode string, ok bool) {
	const listen = "0A"
	if len(fields) < 10 || fields[3] != listen {
		return "", "", false
	}
	host, port, _ := strings.Cut(fields[1], ":")
	raw, err := hex.DecodeString(host)
	if err != nil {
		return "", "", false
	}
	for word := 0; word+4 <= len(raw); word += 4 { // words in the host's order
		slices.Reverse(raw[word : word+4])
	}
	ip, ok := netip.AddrFromSlice(raw)
	n, err := strconv.ParseUint(port, 16, 16)
	return netip.AddrPortFrom(ip.Unmap(), uint16(n)).String(), fields[9], ok && err == nil
}

// accepting reads a line of /proc/net/unix.
func accepting(fields []string) (address, inode string, ok bool) {
	const accepts = 0x10000
	if len(fields) < 8 {
		return "", "", false
	}
	flags, err := strconv.ParseUint(fields[3], 16, 32)
	return fields[7], fields[6], err == nil && flags&accepts != 0
}

// Purposes says what each address is for that the fleet told a process to listen on.
func (f *Fleet) Purposes() map[string]string {
	out := map[string]string{f.TemporalAddress: "temporal", f.TemporalMetrics: "metrics", strings.TrimPrefix(f.RedisURL, "redis://"): "redis"}
	for _, s := range f.seats {
		out[s.engine], out[s.metrics], out[s.control], out[s.peer], out[s.daemonMetrics], out[s.socket] = "engine", "metrics", "control", "peer", "metrics", "engine socket"
	}
	for id := range f.HTTP {
		out[f.HTTP[id]], out[f.GRPC[id]] = "http", "grpc"
	}
	return out
}
