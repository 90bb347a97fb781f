package access

import (
	"context"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// LookEvery is how soon a change of the file is seen.
const LookEvery = time.Second

// File is an Authenticator by a file that is read again when it changes.
type File struct {
	path string
	log  *slog.Logger
	now  atomic.Pointer[table]
	seen stamp

	taken, refused atomic.Uint64
	stale          atomic.Bool
}

// Reads says how often a changed file was read again and taken, or was no good,
// and whether what lies there now is no good, so that an older one is in force.
func (f *File) Reads() (taken, refused uint64, stale bool) {
	return f.taken.Load(), f.refused.Load(), f.stale.Load()
}

// stamp tells two states of a file apart.
type stamp struct {
	at   time.Time
	size int64
}

// Open reads the file; Watch keeps it fresh.
func Open(path string, log *slog.Logger) (*File, error) {
	f := &File{path: path, log: log, seen: look(path)}
	t, err := readFile(path)
	if err != nil {
		return nil, err
	}
	f.now.Store(t)
	return f, nil
}

// Caller implements Authenticator.
func (f *File) Caller(ctx context.Context, c Credentials) (Caller, error) {
	return f.now.Load().caller(ctx, c)
}

// Fleet says whether the file names gateways and workers.
func (f *File) Fleet() bool { return f.now.Load().fleet }

// Watch reads the file again whenever it changes, until ctx ends. A file that is
// no good changes nothing: who was let in stays in, and nobody else comes.
func (f *File) Watch(ctx context.Context) {
	tick := time.NewTicker(LookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f.again()
		}
	}
}

func (f *File) again() {
	s := look(f.path)
	if s == f.seen {
		return
	}
	f.seen = s
	t, err := readFile(f.path)
	f.stale.Store(err != nil)
	if err != nil {
		f.refused.Add(1)
		f.log.Error("the access file changed and is no good: the last good one stays in force", "error", err.Error())
		return
	}
	f.now.Store(t)
	f.taken.Add(1)
	f.log.Info("the access file was read again", "tenants", len(t.tenants), "keys", len(t.keys))
}

// look is the zero stamp for a file that is not there.
func look(path string) stamp {
	i, err := os.Stat(path)
	if err != nil {
		return stamp{}
	}
	return stamp{i.ModTime(), i.Size()}
}
