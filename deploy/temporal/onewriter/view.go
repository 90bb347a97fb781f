package onewriter

import (
	"context"
	"database/sql/driver"
	"errors"
)

var errOptions = errors.New("onewriter: no isolation levels and no read-only transactions")

// view is one of many connections to a file. database/sql has one goroutine at
// a time use it.
type view struct {
	*file
	forget func() error
	inTx   bool // and so has the turn
}

// undisturbed is ctx for one statement, which SQLite either runs or does not:
// interrupting it amid its few microseconds would cost a goroutine a statement.
func undisturbed(ctx context.Context) (context.Context, error) {
	return context.WithoutCancel(ctx), ctx.Err()
}

// ExecContext is a transaction of its own where none is open.
func (v *view) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	ctx, err := undisturbed(ctx)
	if err != nil {
		return nil, err
	}
	if v.inTx {
		return v.exec(ctx, text, args)
	}
	v.enter()
	if err := v.begin(); err != nil {
		v.leave()
		return nil, err
	}
	done, err := v.exec(ctx, text, args)
	if err != nil {
		err = errors.Join(err, v.undo())
		v.leave()
		return nil, err
	}
	g, err := v.keep()
	v.leave()
	if err != nil {
		return nil, err
	}
	return done, g.wait()
}

// QueryContext answers with rows that have the turn, where no transaction is open.
func (v *view) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	ctx, err := undisturbed(ctx)
	if err != nil {
		return nil, err
	}
	if v.inTx {
		return orNil(v.query(ctx, text, args))
	}
	v.enter()
	found, err := v.query(ctx, text, args)
	if err != nil {
		v.leave()
		return nil, err
	}
	found.turn = v.file
	return found, nil
}

func orNil(r *rows, err error) (driver.Rows, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Begin is BeginTx, for callers of old.
func (v *view) Begin() (driver.Tx, error) {
	return v.BeginTx(context.Background(), driver.TxOptions{})
}

// BeginTx takes the turn until the transaction's end.
func (v *view) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	if o != (driver.TxOptions{}) {
		return nil, errOptions
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	v.enter()
	if err := v.begin(); err != nil {
		v.leave()
		return nil, err
	}
	v.inTx = true
	return tx{v}, nil
}

type tx struct{ *view }

// Commit returns once the transaction is durable.
func (t tx) Commit() error {
	g, err := t.keep()
	t.inTx = false
	t.leave()
	if err != nil {
		return err
	}
	return g.wait()
}

func (t tx) Rollback() error {
	err := t.undo()
	t.inTx = false
	t.leave()
	return err
}

// Prepare is what database/sql asks for where a caller keeps statements itself.
func (v *view) Prepare(text string) (driver.Stmt, error) { return unprepared{v, text}, nil }

// unprepared looks its statement up in the file each time.
type unprepared struct {
	*view
	text string
}

func (u unprepared) Close() error  { return nil }
func (u unprepared) NumInput() int { return -1 }

func (u unprepared) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return u.view.ExecContext(ctx, u.text, args)
}

func (u unprepared) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return u.view.QueryContext(ctx, u.text, args)
}

func (u unprepared) Exec(args []driver.Value) (driver.Result, error) {
	return u.ExecContext(context.Background(), named(args))
}

func (u unprepared) Query(args []driver.Value) (driver.Rows, error) {
	return u.QueryContext(context.Background(), named(args))
}

func named(values []driver.Value) []driver.NamedValue {
	out := make([]driver.NamedValue, len(values))
	for i, v := range values {
		out[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return out
}

// IsValid has database/sql drop a view whose file is broken.
func (v *view) IsValid() bool { return v.sqlite.IsValid() }

// Close ends the view, and the file with the last one.
func (v *view) Close() error { return v.forget() }
