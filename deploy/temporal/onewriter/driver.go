// Package onewriter is the SQLite driver for files that one process has to
// itself. It stands in for the driver named "sqlite", which is the name that
// Temporal's persistence opens, and does two things that the server does not:
//
//   - Statements are prepared once a file, not once a call.
//   - Transactions that come at the same time share one commit, and so one
//     fsync. They still run one after another, each undone alone if it fails,
//     and none is acknowledged before the commit that it is part of. A read
//     answers only once what it saw is committed.
//
// Every connection to a file is a view of the one connection beneath, so a pool
// should have as many as there may be callers at once.
package onewriter

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	_ "modernc.org/sqlite" // registers the driver that is stood in for
)

// name is the driver that Temporal's SQLite persistence opens.
const name = "sqlite"

// Gather is the attribute of a file that has its commits wait so long for
// others, whether or not there are any at the moment. It travels as a pragma,
// which is what Temporal makes of every attribute, and is taken out here.
const Gather = "surehand_gather"

// drivers is database/sql's table of drivers, which offers no way to replace
// one. The name is kept linkable by Go on purpose (go.dev/issue/67401).
//
//go:linkname drivers database/sql.drivers
var drivers map[string]driver.Driver

// Before main there is nobody else to look at the table.
func init() { drivers[name] = &standIn{under: drivers[name], files: map[string]*file{}} }

type standIn struct {
	under driver.Driver
	mu    sync.Mutex
	files map[string]*file // by data source name
}

// Open gives one more view of the file, which is opened for the first.
func (s *standIn) Open(dsn string) (driver.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[dsn]
	if f == nil {
		plain, gather, err := takeGather(dsn)
		if err != nil {
			return nil, err
		}
		under, err := s.under.Open(plain)
		if err != nil {
			return nil, err
		}
		f = newFile(under.(sqlite), gather)
		s.files[dsn] = f
	}
	f.views++
	return &view{file: f, forget: func() error { return s.close(dsn, f) }}, nil
}

// close closes the file with its last view.
func (s *standIn) close(dsn string, f *file) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.views--; f.views > 0 {
		return nil
	}
	delete(s.files, dsn)
	return f.close()
}

var errGather = errors.New("onewriter: " + Gather + " is no duration")

// takeGather splits our own attribute from a data source name.
func takeGather(dsn string) (plain string, gather time.Duration, err error) {
	path, query, found := strings.Cut(dsn, "?")
	if !found {
		return dsn, 0, nil
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", 0, fmt.Errorf("onewriter: data source name: %w", err)
	}
	var rest []string
	for _, pragma := range values["_pragma"] {
		key, value, _ := strings.Cut(pragma, "=")
		if key != Gather {
			rest = append(rest, pragma)
			continue
		}
		if gather, err = time.ParseDuration(value); err != nil || gather < 0 {
			return "", 0, fmt.Errorf("%w: %q", errGather, value)
		}
	}
	values["_pragma"] = rest
	return path + "?" + values.Encode(), gather, nil
}
