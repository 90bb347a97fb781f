package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/surehand/surehand/transferd/client"
)

// copy moves the same scattered pieces by memmove, on one thread.
func (r *rig) copy(context.Context) (sample, error) { return r.moved(func([]byte) {}) }

// copyChecked takes the CRC32C of each piece while it is in the cache.
func (r *rig) copyChecked(context.Context) (sample, error) {
	return r.moved(func(b []byte) { sink ^= client.Checksum(b) })
}

var sink uint32 // keeps the checksums from being left out

func (r *rig) moved(each func([]byte)) (sample, error) {
	from, to := r.source.Bytes(), r.target.Bytes()
	before, err := processor()
	if err != nil {
		return sample{}, err
	}
	began := time.Now()
	for i := range r.pieces {
		p, _ := r.shape.Place(uint32(i))
		n := uint64(p.Bytes)
		piece := to[r.to[i] : r.to[i]+n]
		copy(piece, from[r.offsets[i]:r.offsets[i]+n])
		each(piece)
	}
	wire := time.Since(began)
	after, err := processor()
	return sample{bytes: r.shape.Bytes(), wire: wire, cpu: after - before}, err
}

// iperf is iperf3 over loopback with one stream: what TCP costs without headers,
// scattered places or checks.
type iperf struct {
	path    string
	bytes   uint64
	control string // congestion control; empty: the host's
}

func newIperf(bytes uint64, control string) (*iperf, string) {
	path, err := exec.LookPath("iperf3")
	if err != nil {
		return nil, "it is not installed (Debian: apt install iperf3)"
	}
	return &iperf{path, bytes, control}, ""
}

// report is the part of iperf3's JSON that is read.
type report struct {
	End struct {
		Received struct {
			Bytes   uint64  `json:"bytes"`
			Seconds float64 `json:"seconds"`
		} `json:"sum_received"`
	} `json:"end"`
}

func (p *iperf) run(ctx context.Context) (sample, error) {
	port, err := freePort()
	if err != nil {
		return sample{}, err
	}
	const enough = 1 << 30 // a shorter run is over before it is measured
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	server := exec.CommandContext(ctx, p.path, "-s", "-1", "-B", "127.0.0.1", "-p", port)
	if err := server.Start(); err != nil {
		return sample{}, err
	}
	defer func() {
		if server.ProcessState == nil {
			_ = server.Process.Kill() // it was not asked, or is stuck
			_ = server.Wait()
		}
	}()
	var r report
	var cpu time.Duration
	for range 100 { // until it listens
		args := []string{"-c", "127.0.0.1", "-p", port, "-J", "-l", "1M", "-n", strconv.FormatUint(max(p.bytes, enough), 10)}
		if p.control != "" {
			args = append(args, "-C", p.control)
		}
		c := exec.CommandContext(ctx, p.path, args...)
		var out []byte
		if out, err = c.Output(); err == nil {
			err = json.Unmarshal(out, &r)
		}
		if err == nil && r.End.Received.Bytes > 0 && r.End.Received.Seconds > 0 { // a server that is not quite there reports nothing
			cpu = c.ProcessState.UserTime() + c.ProcessState.SystemTime()
			break
		}
		select {
		case <-ctx.Done():
			return sample{}, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err != nil || r.End.Received.Bytes == 0 {
		return sample{}, fmt.Errorf("iperf3 measured nothing: %w", err)
	}
	stuck := time.AfterFunc(time.Second, func() { _ = server.Process.Kill() }) // it does not always end by itself
	_ = server.Wait()                                                          // how it ended is of no interest
	stuck.Stop()
	cpu += server.ProcessState.UserTime() + server.ProcessState.SystemTime()
	wire := time.Duration(r.End.Received.Seconds * float64(time.Second))
	return sample{bytes: r.End.Received.Bytes, wire: wire, cpu: cpu}, nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return "", err
	}
	return port, l.Close()
}

// machine says on what the figures were measured, and how loud it was.
func machine() string {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		load = []byte("unknown")
	}
	control, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
	if err != nil {
		control = []byte("unknown")
	}
	loud := strings.Fields(string(load))[0]
	return fmt.Sprintf("%d cores, load %s before the first row, congestion control %s.\nCPU seconds hold still on a loud machine, GB/s and times do not.", runtime.NumCPU(), loud, strings.TrimSpace(string(control)))
}
