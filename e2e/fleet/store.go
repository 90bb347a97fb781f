package fleet

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// ErrNoRedis says that the store is the embedded one, which has no such knobs.
var ErrNoRedis = errors.New("needs redis-server on PATH")

// RealRedis is nil when the store is a Redis of its own make.
func (f *Fleet) RealRedis() error {
	if f.programs.Redis == "" {
		return ErrNoRedis
	}
	return nil
}

// Empty loses everything that the store holds.
func (f *Fleet) Empty(ctx context.Context) error { return f.store.FlushAll(ctx).Err() }

// Keys counts the store's keys, and those among them that never expire.
func (f *Fleet) Keys(ctx context.Context) (all, lasting int, err error) {
	each := f.store.Scan(ctx, 0, "*", 1000).Iterator()
	for each.Next(ctx) {
		all++
		left, err := f.store.TTL(ctx, each.Val()).Result()
		if err != nil {
			return 0, 0, err
		}
		if left == -1 { // as go-redis says it
			lasting++
		}
	}
	return all, lasting, each.Err()
}

// Configure sets one of Redis's own settings.
func (f *Fleet) Configure(ctx context.Context, name, value string) error {
	if err := f.RealRedis(); err != nil {
		return err
	}
	return f.store.ConfigSet(ctx, name, value).Err()
}

// Snapshot has Redis keep what it holds now, for its next life; ForgetSnapshot
// lets that life, and later ones, begin empty again.
func (f *Fleet) Snapshot(ctx context.Context) error {
	if err := f.RealRedis(); err != nil {
		return err
	}
	return f.store.Save(ctx).Err()
}

// ForgetSnapshot removes what Snapshot kept.
func (f *Fleet) ForgetSnapshot() error {
	err := os.Remove(filepath.Join(f.Dir, "dump.rdb"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
