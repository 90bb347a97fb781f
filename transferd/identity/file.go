package identity

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"
)

// maxFileBytes bounds what is read as a certificate, key or authority.
const maxFileBytes = 1 << 20

// file is something read from files, and again when one of them changed. While a
// rotation is half way through, what is there does not fit together, and what was
// read before stays in use.
type file[T any] struct {
	names []string
	parse func(contents [][]byte) (T, error)

	mu     sync.Mutex
	seen   []stamp
	loaded bool
	value  T
}

type stamp struct {
	at   time.Time
	size int64
}

func (f *file[T]) get() (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, err := f.stamps()
	if err != nil {
		return f.before(err)
	}
	if f.loaded && equal(now, f.seen) {
		return f.value, nil
	}
	contents := make([][]byte, len(f.names))
	for i, name := range f.names {
		if contents[i], err = os.ReadFile(name); err != nil {
			return f.before(err)
		}
	}
	next, err := f.parse(contents)
	if err != nil {
		return f.before(err)
	}
	f.value, f.seen, f.loaded = next, now, true
	return f.value, nil
}

func (f *file[T]) stamps() ([]stamp, error) {
	out := make([]stamp, len(f.names))
	for i, name := range f.names {
		st, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		if st.Size() > maxFileBytes {
			return nil, fmt.Errorf("%s has %d bytes, limit %d", name, st.Size(), maxFileBytes)
		}
		out[i] = stamp{st.ModTime(), st.Size()}
	}
	return out, nil
}

func equal(a, b []stamp) bool {
	for i := range a {
		if !a[i].at.Equal(b[i].at) || a[i].size != b[i].size {
			return false
		}
	}
	return true
}

// before gives what was read last; the error only when nothing ever was.
func (f *file[T]) before(err error) (T, error) {
	if f.loaded {
		return f.value, nil
	}
	return f.value, err
}

func pairFile(cert, key string) file[*tls.Certificate] {
	return file[*tls.Certificate]{names: []string{cert, key}, parse: func(b [][]byte) (*tls.Certificate, error) {
		pair, err := tls.X509KeyPair(b[0], b[1])
		return &pair, err
	}}
}

func rootsFile(name string) file[*x509.CertPool] {
	return file[*x509.CertPool]{names: []string{name}, parse: func(b [][]byte) (*x509.CertPool, error) {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(b[0]) {
			return nil, fmt.Errorf("%s holds no certificate", name)
		}
		return pool, nil
	}}
}
