package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/iancoleman/strcase"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jmoiron/sqlx"
	"github.com/surehand/surehand/deploy/temporal/settings"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/postgresql"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/postgresql/driver"
	assets "go.temporal.io/server/schema"
	postgres "go.temporal.io/server/schema/postgresql/v12"
)

// Errors of a PostgreSQL store.
var (
	// ErrStore means that the URL names no database that can be used.
	ErrStore = errors.New("--store is no PostgreSQL database")
	// ErrPlainStore refuses to send histories, and a password, in the clear to
	// another machine, or to one that is not proved to be the right one.
	ErrPlainStore = errors.New("the store is on another machine and its connection is not verified by TLS")
	// ErrStoreInUse means that another server works on the same database.
	ErrStoreInUse = errors.New("the store is in use by another server")
)

const (
	// visibilitySuffix names the database of the list of workflows.
	visibilitySuffix = "_visibility"

	// poolParameter bounds the connections of one pool, as pgxpool has it; each
	// of the server's four services has a pool for either database. What they
	// hold together stays below PostgreSQL's default of 100.
	poolParameter = "pool_max_conns"
	poolDefault   = 20
	listPool      = 5 // nobody waits for the list

	// storeLock is the key of the advisory lock of one server: "surehand".
	storeLock = 0x7375726568616e64
)

// openPostgres makes what is missing: databases, tables, in one transaction each.
func openPostgres(ctx context.Context, s settings.Settings) (out stores, err error) {
	at, err := parseStore(s.Store)
	if err != nil {
		return out, err
	}
	main, err := at.open(ctx, "")
	if err != nil {
		return out, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, main.Close(context.WithoutCancel(ctx)))
		}
	}()
	if err := lockStore(ctx, main, lockTimeout); err != nil {
		return out, err
	}
	if err := makeTables(ctx, main, at.name, "postgresql/v12/temporal/schema.sql", postgres.Version); err != nil {
		return out, err
	}
	list, err := at.open(ctx, visibilitySuffix)
	if err != nil {
		return out, err
	}
	err = makeTables(ctx, list, at.name+visibilitySuffix, "postgresql/v12/visibility/schema.sql", postgres.VisibilityVersion)
	if err = errors.Join(err, list.Close(ctx)); err != nil {
		return out, err
	}
	return stores{main: at.pool("", at.most), visibility: at.pool(visibilitySuffix, min(at.most, listPool)),
		shards:  cmp.Or(s.Shards, settings.DefaultShards),
		release: func() error { return main.Close(context.Background()) }}, nil
}

// storeURL is a store's URL, taken apart.
type storeURL struct {
	url  url.URL
	name string // of the database
	most int    // connections of a pool
}

// parseStore refuses what would be unsafe before anything is opened. Its errors
// hold no password.
func parseStore(text string) (storeURL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return storeURL{}, fmt.Errorf("%w: give postgres://user@host:port/database", ErrStore)
	}
	out := storeURL{url: *u, name: strings.TrimPrefix(u.Path, "/"), most: poolDefault}
	if out.name == "" {
		return out, fmt.Errorf("%w: it names no database", ErrStore)
	}
	values := u.Query()
	if most := values.Get(poolParameter); most != "" {
		if out.most, err = strconv.Atoi(most); err != nil || out.most < 2 {
			return out, fmt.Errorf("%w: %s is no number from 2 on", ErrStore, poolParameter)
		}
		values.Del(poolParameter)
		out.url.RawQuery = values.Encode()
	}
	parsed, err := pgx.ParseConfig(out.url.String())
	if err != nil {
		return out, fmt.Errorf("%w: %w", ErrStore, err) // pgx leaves the password out
	}
	return out, private(parsed)
}

// private says whether every way to the database is on this machine or verified.
func private(c *pgx.ConnConfig) error {
	ways := []*pgconn.FallbackConfig{{Host: c.Host, TLSConfig: c.TLSConfig}}
	for _, way := range append(ways, c.Fallbacks...) {
		ip, err := netip.ParseAddr(way.Host)
		here := strings.HasPrefix(way.Host, "/") || way.Host == "localhost" || err == nil && ip.IsLoopback()
		t := way.TLSConfig // sslmode=verify-ca checks the certificate by a function of its own
		if !here && (t == nil || t.InsecureSkipVerify && t.VerifyPeerCertificate == nil) {
			return fmt.Errorf("%w (%s): add sslmode=verify-full", ErrPlainStore, way.Host)
		}
	}
	return nil
}

// dsn of the database with that suffix.
func (s storeURL) dsn(suffix string) string { return s.named(s.name + suffix) }

func (s storeURL) named(database string) string {
	u := s.url
	u.Path, u.RawPath = "/"+database, ""
	return u.String()
}

// pool is how the server opens it.
func (s storeURL) pool(suffix string, most int) *config.SQL {
	return &config.SQL{
		PluginName:   postgresql.PluginNamePGX, // keeps statements prepared, which lib/pq does not
		DatabaseName: s.name + suffix,
		Connect: func(*config.SQL) (*sqlx.DB, error) {
			db, err := (&driver.PGXDriver{}).CreateConnection(s.dsn(suffix))
			if err != nil {
				return nil, err
			}
			db.SetMaxOpenConns(most)
			db.SetMaxIdleConns(most)
			db.MapperFunc(strcase.ToSnake) // as the plugin's own way to connect has it
			return db, nil
		},
	}
}

// PostgreSQL's codes.
const (
	noDatabase  = "3D000"
	hasDatabase = "42P04"
)

func coded(err error, code string) bool {
	var said *pgconn.PgError
	return errors.As(err, &said) && said.Code == code
}

// open connects to the database, which is made when there is none.
func (s storeURL) open(ctx context.Context, suffix string) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, s.dsn(suffix))
	if coded(err, noDatabase) {
		if err := s.create(ctx, s.name+suffix); err != nil {
			return nil, err
		}
		conn, err = pgx.Connect(ctx, s.dsn(suffix))
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the store: %w", err)
	}
	return conn, nil
}

func (s storeURL) create(ctx context.Context, database string) error {
	conn, err := pgx.Connect(ctx, s.named("postgres"))
	if err != nil {
		return fmt.Errorf("there is no database %q, and none to make it from: %w", database, err)
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{database}.Sanitize())
	if coded(err, hasDatabase) { // somebody was quicker
		err = nil
	}
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return fmt.Errorf("make database %q (a role without CREATEDB needs it made beforehand): %w", database, err)
	}
	return nil
}

// rows is the part of a connection that a lock is asked for by.
type rows interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// lockStore holds for as long as the connection does. Two servers on one store
// would take the shards from each other all the time; that they cannot harm it
// is Temporal's own doing, by the number that a shard's owner writes with.
//
// What bounds the wait bounds no question: one that is cut short costs the
// connection, and says nothing of the lock.
func lockStore(ctx context.Context, conn rows, wait time.Duration) error {
	enough := time.NewTimer(wait)
	defer enough.Stop()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		var mine bool
		if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(storeLock)).Scan(&mine); err != nil {
			return fmt.Errorf("lock the store: %w", err)
		}
		if mine {
			return nil
		}
		select {
		case <-enough.C:
			return fmt.Errorf("%w: stop that one, or name another database", ErrStoreInUse)
		case <-ctx.Done():
			return fmt.Errorf("lock the store: %w", ctx.Err())
		case <-ticker.C:
		}
	}
}

// versions are the tables that Temporal's own tools keep a schema's version in.
const versions = `
CREATE TABLE schema_version (version_partition INT NOT NULL, db_name VARCHAR(255) NOT NULL, creation_time TIMESTAMP,
	curr_version VARCHAR(64), min_compatible_version VARCHAR(64), PRIMARY KEY (version_partition, db_name));
CREATE TABLE schema_update_history (version_partition INT NOT NULL, year INT NOT NULL, month INT NOT NULL, update_time TIMESTAMP NOT NULL,
	description VARCHAR(255), manifest_md5 VARCHAR(64), new_version VARCHAR(64), old_version VARCHAR(64),
	PRIMARY KEY (version_partition, year, month, update_time));`

// makeTables makes the server's tables where there are none, all or nothing. A
// schema that is there is left as it is: whether it is new enough the server
// checks itself, and temporal-sql-tool brings an older one up to date.
func makeTables(ctx context.Context, conn *pgx.Conn, database, path, version string) error {
	text, err := fs.ReadFile(assets.Assets(), path)
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		var there bool
		if err := tx.QueryRow(ctx, "SELECT to_regclass('schema_version') IS NOT NULL").Scan(&there); err != nil || there {
			return err
		}
		if _, err := conn.PgConn().Exec(ctx, versions+string(text)).ReadAll(); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO schema_version VALUES (0, $1, now(), $2, $2)", database, version)
		return err
	})
	if err != nil {
		return fmt.Errorf("make the tables of database %q: %w", database, err)
	}
	return nil
}
