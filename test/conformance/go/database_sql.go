package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

type sqlDatabase struct {
	ctx context.Context
	db  *sql.DB
}

func openDatabaseSQL(ctx context.Context, url string) (Database, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	// as in pgx.go; with sql.Open("pgx", url) it is default_query_exec_mode=exec in the url
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(1)
	return sqlDatabase{ctx, db}, db.PingContext(ctx)
}

var isolationLevels = map[string]sql.IsolationLevel{
	"read committed":  sql.LevelReadCommitted,
	"repeatable read": sql.LevelRepeatableRead,
	"serializable":    sql.LevelSerializable,
}

func (d sqlDatabase) Transaction(isolation string, body func(Statements) error) error {
	tx, err := d.db.BeginTx(d.ctx, &sql.TxOptions{Isolation: isolationLevels[isolation]})
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	if err := body(sqlStatements{d.ctx, tx, 0}); err != nil {
		return err
	}
	return tx.Commit()
}

func (d sqlDatabase) Alone() Statements { return sqlStatements{d.ctx, d.db, 0} }

func (d sqlDatabase) Close() { d.db.Close() }

// A *sql.Tx and a *sql.DB have these in common.
type sqlExecutor interface {
	ExecContext(ctx context.Context, query string, values ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, values ...any) *sql.Row
}

type sqlStatements struct {
	ctx   context.Context
	tx    sqlExecutor
	depth int
}

func (s sqlStatements) Exec(query string, values ...any) error {
	_, err := s.tx.ExecContext(s.ctx, query, values...)
	return err
}

func (s sqlStatements) Complete(query string, values ...any) (jobID int64, outcome string, err error) {
	err = s.tx.QueryRowContext(s.ctx, query, values...).Scan(&jobID, &outcome)
	return
}

// database/sql has no nested transactions: a savepoint is its statements.
func (s sqlStatements) Nested(body func(Statements) error) error {
	name := fmt.Sprintf("nested_%d", s.depth)
	if err := s.Exec("savepoint " + name); err != nil {
		return err
	}
	if err := body(sqlStatements{s.ctx, s.tx, s.depth + 1}); err != nil {
		return errors.Join(err, s.Exec("rollback to savepoint "+name))
	}
	return s.Exec("release savepoint " + name)
}
