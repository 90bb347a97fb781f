package fleet

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// clockTick is the unit of /proc's CPU times on Linux.
const clockTick = 10 * time.Millisecond

// CPU is what the process's present life has used, with its children where it
// has some; its unit is 10 ms.
func (p *Process) CPU() (time.Duration, error) {
	pid := p.PID()
	ticks, err := cpuTicks(pid)
	if err != nil || p.name != Postgres {
		return time.Duration(ticks) * clockTick, err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0, err
	}
	for _, field := range strings.Fields(string(text)) {
		child, err := strconv.Atoi(field)
		if err != nil {
			return 0, err
		}
		more, err := cpuTicks(child)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // ended meanwhile, and is its parent's then
			return 0, err
		}
		ticks += more
	}
	return time.Duration(ticks) * clockTick, nil
}

// cpuTicks of a process and of those of its children that have ended.
func cpuTicks(pid int) (int64, error) {
	fields, err := stat(pid)
	if err != nil {
		return 0, err
	}
	return sum(fields[statTime:statWaited])
}

// Group is what the processes of a group have used, and which they are; its unit is
// 10 ms.
func Group(group int) (used time.Duration, pids []int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, nil, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue // no process
		}
		fields, err := stat(pid)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it ended
		}
		if err != nil {
			return 0, nil, err
		}
		if fields[statGroup] != strconv.Itoa(group) {
			continue
		}
		ticks, err := sum(fields[statTime:statChildren])
		if err != nil {
			return 0, nil, err
		}
		used, pids = used+time.Duration(ticks)*clockTick, append(pids, pid)
	}
	return used, pids, nil
}

// Fields of /proc's stat behind the program's name (proc(5)).
const (
	statGroup    = 2
	statTime     = 11 // in user mode, in the kernel
	statChildren = 13 // the same of children that have ended
	statWaited   = 15
)

func stat(pid int) ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < statWaited {
		return nil, fmt.Errorf("/proc stat of %d is %q", pid, text)
	}
	return fields, nil
}

func sum(ticks []string) (sum int64, err error) {
	for _, field := range ticks {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// RSS is the memory that the process has resident now, in bytes.
func (p *Process) RSS() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID()))
	if err != nil {
		return 0, err
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0, fmt.Errorf("%s: /proc statm is %q", p.name, text)
	}
	return resident * int64(os.Getpagesize()), nil
}

// Descriptors is how many files and sockets the process has open.
func (p *Process) Descriptors() (int, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID()))
	return len(entries), err
}

// Resident is the memory that the process has in RAM, in bytes.
func (p *Process) Resident() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID()))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("%s: /proc statm is %q", p.name, text)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// Kinds of process, told apart in measurements.
var Kinds = []string{"gateway", Temporal, Postgres, Redis, "transferd", "engine"}

// Kind of a process.
func (p *Process) Kind() string {
	switch {
	case p.name == Temporal, p.name == Redis, p.name == Postgres:
		return p.name
	case p.name[0] == 'g':
		return "gateway"
	case p.name[0] == 't':
		return "transferd"
	}
	return "engine"
}

// CPU by kind of process, since their starts.
func (f *Fleet) CPU() (map[string]time.Duration, error) {
	out := map[string]time.Duration{}
	for _, p := range f.order {
		used, err := p.CPU()
		if err != nil {
			return nil, err
		}
		out[p.Kind()] += used
	}
	return out, nil
}

// RedisCommands is how many commands the store has run since its start; false
// when it does not count them, as the one in memory.
func (f *Fleet) RedisCommands(ctx context.Context) (int, bool, error) {
	text, err := f.store.Info(ctx, "stats").Result()
	var said redis.Error
	if errors.As(err, &said) { // the store in memory has no such section
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	_, rest, ok := strings.Cut(text, "total_commands_processed:")
	if !ok {
		return 0, false, nil
	}
	digits, _, _ := strings.Cut(rest, "\r\n")
	n, err := strconv.Atoi(digits)
	return n, err == nil, err
}

// RedisCalls is how often the store has run each command since its start; nil
// when it does not count them. A script's own calls are counted too.
func (f *Fleet) RedisCalls(ctx context.Context) (map[string]int, error) {
	text, err := f.store.Info(ctx, "commandstats").Result()
	var said redis.Error
	if errors.As(err, &said) { // the store in memory has no such section
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for line := range strings.Lines(text) {
		name, counts, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok {
			continue
		}
		digits, _, _ := strings.Cut(counts, ",")
		if out[name], err = strconv.Atoi(digits); err != nil {
			return nil, fmt.Errorf("commandstats say %q: %w", line, err)
		}
	}
	return out, nil
}

// HistoryWrites counts what Temporal has persisted for histories since its
// start: its own counters of the two persistence calls that write a history. It
// publishes them once a second.
func (f *Fleet) HistoryWrites(ctx context.Context) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.TemporalMetrics+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := once.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	total, seen := 0, false
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		n, ok, err := historyWrite(lines.Text())
		if err != nil {
			return 0, err
		}
		total, seen = total+n, seen || ok
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	if !seen {
		return 0, fmt.Errorf("the server at %s has no counter of history writes", f.TemporalMetrics)
	}
	return total, nil
}

// historyWrite reads one line of the exposition format.
func historyWrite(line string) (n int, ok bool, err error) {
	if !strings.HasPrefix(line, "persistence_requests{") || !strings.Contains(line, `namespace="default"`) {
		return 0, false, nil // the server's own workflows live in another namespace
	}
	for _, operation := range []string{"CreateWorkflowExecution", "UpdateWorkflowExecution"} {
		if !strings.Contains(line, `operation="`+operation+`"`) {
			continue
		}
		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		return int(value), true, err
	}
	return 0, false, nil
}
