package onewriter

import (
	"context"
	"database/sql/driver"
)

// keptMost bounds the statements of a file: the server has about a hundred,
// besides the queries that people make up.
const keptMost = 512

// kept is a prepared statement.
type kept struct {
	statement
	open bool // its rows are being read: it cannot run a second time meanwhile
}

type statement interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// prepared gives the kept statement of a text; nil: the text is to be run unkept.
func (f *file) prepared(ctx context.Context, text string) (*kept, error) {
	k := f.kept[text]
	if k == nil && len(f.kept) < keptMost {
		made, err := f.sqlite.PrepareContext(ctx, text)
		if err != nil {
			return nil, err
		}
		k = &kept{statement: made.(statement)}
		f.kept[text] = k
	}
	if k == nil || k.open {
		return nil, nil
	}
	return k, nil
}

func (f *file) exec(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	k, err := f.prepared(ctx, text)
	if err != nil {
		return nil, err
	}
	if k == nil {
		return f.sqlite.ExecContext(ctx, text, args)
	}
	return k.ExecContext(ctx, args)
}

func (f *file) query(ctx context.Context, text string, args []driver.NamedValue) (*rows, error) {
	k, err := f.prepared(ctx, text)
	if err != nil {
		return nil, err
	}
	var found driver.Rows
	if k == nil {
		found, err = f.sqlite.QueryContext(ctx, text, args)
	} else {
		found, err = k.QueryContext(ctx, args)
	}
	if err != nil {
		return nil, err
	}
	if k != nil {
		k.open = true
	}
	return &rows{typed: found.(typed), of: k}, nil
}

// typed rows tell the types of their columns, which database/sql asks for.
type typed interface {
	driver.Rows
	driver.RowsColumnTypeDatabaseTypeName
	driver.RowsColumnTypeLength
	driver.RowsColumnTypeNullable
	driver.RowsColumnTypePrecisionScale
	driver.RowsColumnTypeScanType
}

// rows of one query. Outside a transaction they hold the turn until they are
// closed.
type rows struct {
	typed
	of   *kept // may be nil
	turn *file // may be nil
	over bool  // Close was called
}

// Close gives the statement and the turn back. It returns once what was read is
// durable.
func (r *rows) Close() error {
	if r.over {
		return nil
	}
	r.over = true
	err := r.typed.Close()
	if r.of != nil {
		r.of.open = false
	}
	if r.turn == nil {
		return err
	}
	f := r.turn
	if f.group == nil {
		f.leave()
		return err
	}
	g := f.join()
	f.leave()
	if err != nil {
		return err
	}
	return g.wait()
}
