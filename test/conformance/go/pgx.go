package main

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

type pgxDatabase struct {
	ctx  context.Context
	pool *pgxpool.Pool
}

func openPgx(ctx context.Context, url string) (Database, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 1
	// Behind a pooler in transaction mode a statement prepared by name is met by another session. The default of pgx does that;
	// this mode sends text and parameters together. In a url: default_query_exec_mode=exec.
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return pgxDatabase{ctx, pool}, pool.Ping(ctx)
}

func (db pgxDatabase) Transaction(isolation string, body func(Statements) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(isolation)}
	return pgx.BeginTxFunc(db.ctx, db.pool, options, func(tx pgx.Tx) error { return body(pgxStatements{db.ctx, tx}) })
}

func (db pgxDatabase) Alone() Statements { return pgxStatements{db.ctx, db.pool} }

func (db pgxDatabase) Close() { db.pool.Close() }

// A transaction, a savepoint and the pool have these in common.
type pgxBeginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	Exec(ctx context.Context, sql string, values ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, values ...any) pgx.Row
}

type pgxStatements struct {
	ctx context.Context
	tx  pgxBeginner
}

func (s pgxStatements) Exec(sql string, values ...any) error {
	_, err := s.tx.Exec(s.ctx, sql, values...)
	return err
}

func (s pgxStatements) Complete(sql string, values ...any) (jobID int64, outcome string, err error) {
	err = s.tx.QueryRow(s.ctx, sql, values...).Scan(&jobID, &outcome)
	return
}

// Begin of a transaction is a savepoint.
func (s pgxStatements) Nested(body func(Statements) error) error {
	return pgx.BeginFunc(s.ctx, s.tx, func(inner pgx.Tx) error { return body(pgxStatements{s.ctx, inner}) })
}
