package embedded

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"

	_ "github.com/surehand/surehand/deploy/temporal/onewriter" // the driver of both files
	"go.temporal.io/server/common/persistence/sql/sqlplugin"
	"go.temporal.io/server/schema/sqlite"
)

// createSchema makes the tables of both files. Each file gets the tables of
// both: the server's package offers them only together, and idle ones cost
// nothing.
func createSchema(main, visibility string) func() error {
	return func() error {
		if err := createTables(main, asItIs); err != nil {
			return err
		}
		return createTables(visibility, lean)
	}
}

// createTables runs the server's statements in one transaction.
func createTables(path string, rewrite func(string) []string) (err error) {
	db, err := sql.Open("sqlite", "file:"+path+"?mode=rwc&_pragma=journal_mode=wal&_pragma=synchronous=full")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		return err
	}
	if err := sqlite.SetupSchemaOnDB(schema{tx: tx, rewrite: rewrite}); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// schema is as much of a database as the server's package needs to make tables.
type schema struct {
	sqlplugin.AdminDB
	tx      *sql.Tx
	rewrite func(string) []string
}

func (s schema) Exec(statement string, args ...any) error {
	for _, text := range s.rewrite(statement) {
		if _, err := s.tx.Exec(text, args...); err != nil {
			return err
		}
	}
	return nil
}

func asItIs(statement string) []string { return []string{statement} }

// keptIndexes are those of the list of workflows that stay. The server has one
// for each of 60 columns, and writes into every one of them at each of a
// handoff's changes: a quarter of its CPU. The rest of the columns are searched
// by reading, which is quick enough for as many workflows as one machine keeps.
var keptIndexes = regexp.MustCompile(`(?i)^\s*CREATE INDEX\s+(default_idx|by_workflow_id|by_status)\s`)

var (
	anyIndex   = regexp.MustCompile(`(?i)^\s*CREATE INDEX\s+\w+\s+ON executions_visibility\b`)
	anyTrigger = regexp.MustCompile(`(?i)^\s*CREATE TRIGGER\s+executions_visibility_`)
	wordTable  = regexp.MustCompile(`(?is)^\s*CREATE VIRTUAL TABLE\s+(executions_visibility_fts_\w+)\s+USING fts5\s*\((.*)\)\s*;?\s*$`)
	table      = regexp.MustCompile(`(?i)^\s*CREATE TABLE executions_visibility\s*\(`)
	stored     = regexp.MustCompile(`(?i)\)\s+STORED\b`)
)

// lean makes the list of workflows cheap to write. Every query still works.
func lean(statement string) []string {
	switch {
	case table.MatchString(statement):
		// Columns made of the attributes' JSON are made when they are asked for.
		return []string{stored.ReplaceAllString(statement, ")")}
	case anyTrigger.MatchString(statement), anyIndex.MatchString(statement) && !keptIndexes.MatchString(statement):
		return nil
	case wordTable.MatchString(statement):
		parts := wordTable.FindStringSubmatch(statement)
		return append([]string{statement}, wordTriggers(parts[1], columns(parts[2]))...)
	}
	return []string{statement}
}

// columns of a full-text table: its arguments that are no options.
func columns(arguments string) (out []string) {
	for _, a := range strings.Split(arguments, ",") {
		if a = strings.TrimSpace(a); a != "" && !strings.Contains(a, "=") {
			out = append(out, a)
		}
	}
	return out
}

// wordTriggers keep a full-text table up to date as the server's own do, but
// only at changes of the words themselves.
func wordTriggers(words string, names []string) []string {
	each := func(format, separator string) string {
		out := make([]string, len(names))
		for i, n := range names {
			out[i] = strings.ReplaceAll(format, "?", n)
		}
		return strings.Join(out, separator)
	}
	some := func(row string) string { return each(row+".? IS NOT NULL", " OR ") }
	list := strings.Join(names, ", ")
	insert := fmt.Sprintf("INSERT INTO %s (rowid, %s) SELECT NEW.rowid, %s WHERE %s;", words, list, each("NEW.?", ", "), some("NEW"))
	remove := fmt.Sprintf("INSERT INTO %[1]s (%[1]s, rowid, %[2]s) SELECT 'delete', OLD.rowid, %[3]s WHERE %[4]s;", words, list, each("OLD.?", ", "), some("OLD"))
	trigger := func(suffix, event, when, action string) string {
		return fmt.Sprintf("CREATE TRIGGER %s_%s AFTER %s ON executions_visibility WHEN %s BEGIN %s END;", words, suffix, event, when, action)
	}
	return []string{
		trigger("ai", "INSERT", some("NEW"), insert),
		trigger("ad", "DELETE", some("OLD"), remove),
		trigger("au", "UPDATE", each("OLD.? IS NOT NEW.?", " OR "), remove+" "+insert),
	}
}
