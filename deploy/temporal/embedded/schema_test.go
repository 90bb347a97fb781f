package embedded

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func tables(t *testing.T) (main, visibility *sql.DB) {
	t.Helper()
	dir := t.TempDir()
	paths := [2]string{filepath.Join(dir, "main.db"), filepath.Join(dir, "visibility.db")}
	if err := createSchema(paths[0], paths[1])(); err != nil {
		t.Fatal(err)
	}
	var out [2]*sql.DB
	for i, path := range paths {
		db, err := sql.Open("sqlite", "file:"+path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		out[i] = db
	}
	return out[0], out[1]
}

func count(t *testing.T, db *sql.DB, query string, args ...any) (n int) {
	t.Helper()
	if err := db.QueryRow(query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// If the server's schema changes so that our rewriting misses it, this fails.
func TestTheListOfWorkflowsHasFewIndexesAndAllItsColumns(t *testing.T) {
	main, visibility := tables(t)
	const indexes = "select count(*) from sqlite_master where type='index' and tbl_name='executions_visibility' and sql is not null"
	if n := count(t, visibility, indexes); n != 3 {
		t.Errorf("%d indexes", n)
	}
	const columns = "select count(*) from pragma_table_xinfo('executions_visibility')"
	if all, ours := count(t, main, columns), count(t, visibility, columns); all < 50 || ours != all {
		t.Errorf("%d columns, the server has %d", ours, all)
	}
	const kept = "select count(*) from pragma_table_xinfo('executions_visibility') where hidden=3" // stored
	if n := count(t, visibility, kept); n != 0 {
		t.Errorf("%d generated columns are stored", n)
	}
	const triggers = "select count(*) from sqlite_master where type='trigger'"
	if n := count(t, visibility, triggers); n != 6 {
		t.Errorf("%d triggers", n)
	}
	for _, table := range []string{"executions", "history_node", "namespaces"} {
		if n := count(t, main, "select count(*) from "+table); n != 0 {
			t.Errorf("%s has %d rows", table, n)
		}
	}
}

func TestWordsFollowTheirRow(t *testing.T) {
	_, db := tables(t)
	run := func(text string, args ...any) {
		t.Helper()
		if _, err := db.Exec(text, args...); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	put := func(id, attributes string) {
		t.Helper()
		run(`insert into executions_visibility (namespace_id, run_id, start_time, execution_time, workflow_id, workflow_type_name, status, encoding, search_attributes)
			values ('n', ?, '', '', 'w', 't', 1, '', ?) on conflict (namespace_id, run_id) do update set search_attributes = excluded.search_attributes`, id, attributes)
	}
	found := func(table, word string) int {
		t.Helper()
		return count(t, db, "select count(*) from "+table+" where "+table+" match ?", word)
	}
	const words, lists = "executions_visibility_fts_text", "executions_visibility_fts_keyword_list"
	expect := func(step string, text, list int) {
		t.Helper()
		if a, b := found(words, "fox"), found(lists, `"red"`); a != text || b != list {
			t.Errorf("%s: %d by word, %d by list, want %d and %d", step, a, b, text, list)
		}
	}
	const nothing = `{"Keyword01":"fox"}`
	put("1", nothing)
	put("2", `{"Text01":"quick fox"}`)
	put("3", `{"KeywordList01":"red♡blue"}`)
	expect("inserted", 1, 1)
	put("1", `{"Text02":"a fox","KeywordList03":"red"}`) // from no words to some
	expect("words came", 2, 2)
	put("2", nothing) // from some to none
	put("3", nothing)
	expect("words went", 1, 1)
	put("1", `{"Text02":"a hen","KeywordList03":"blue"}`)
	expect("words changed", 0, 0)
	put("2", `{"Text01":"fox"}`)
	put("3", `{"KeywordList01":"red"}`)
	expect("words came back", 1, 1)
	run("delete from executions_visibility")
	expect("rows deleted", 0, 0)
}

func TestOnlyOurOwnTablesAreRewritten(t *testing.T) {
	for _, statement := range []string{"CREATE TABLE executions (a INT)", "CREATE INDEX x ON tasks (a)", "CREATE TRIGGER x AFTER INSERT ON tasks BEGIN SELECT 1; END"} {
		if got := lean(statement); strings.Join(got, "") != statement {
			t.Errorf("%q became %q", statement, got)
		}
	}
}
