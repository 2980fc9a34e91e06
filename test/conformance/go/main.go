// The conformance program of Go: what README.md beside this folder says, for the drivers of pgx.go and database_sql.go.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	token    = "job_id => $1, run_lease => $2, claim_slot => $3, receipt_id => $4, batch_id => $5, batch_index => $6"
	write    = "insert into application_rows (tag) values ($1)"
	expect   = "select awa.expect_completion(" + token + ")"
	complete = "select job_id, outcome from awa.complete_job(" + token + ", progress => $7::jsonb)"
	enqueue  = "select * from awa.insert_job('conformance-follow-up', '{}', 'other')"
	asked    = "set constraints all immediate"
)

// Database is a driver with one connection, which is replaced when it was lost.
type Database interface {
	// Transaction is the driver's own transaction block: rolled back when the body fails.
	Transaction(isolation string, body func(Statements) error) error
	// Alone gives statements outside any transaction.
	Alone() Statements
	Close()
}

// Statements go to one open transaction.
type Statements interface {
	Exec(sql string, values ...any) error
	// Complete scans the one row of complete_job.
	Complete(sql string, values ...any) (jobID int64, outcome string, err error)
	// Nested is the driver's nested transaction: rolled back alone when the body fails.
	Nested(body func(Statements) error) error
}

var open = map[string]func(ctx context.Context, url string) (Database, error){
	"pgx":          openPgx,
	"database-sql": openDatabaseSQL,
}

type request struct {
	URL         string
	Transaction *string
	Attempts    []attempt
	Steps       []step
}

type attempt struct {
	Tag   string
	Token map[string]*string
}

type step struct {
	Do       string
	Swallow  bool
	Progress *string
	Steps    []step
}

type completion struct {
	JobID   string `json:"job_id"`
	Outcome string `json:"outcome"`
}

type result struct {
	End         string       `json:"end"`
	Message     string       `json:"message,omitempty"`
	Completions []completion `json:"completions"`
}

type answer struct {
	Results []result `json:"results"`
	Micros  int64    `json:"micros"`
}

var errApplication = errors.New("the application's own error")

// A token's fields as the driver's parameters are: 64-bit and 32-bit integers, or NULL.
func (of attempt) parameters() ([]any, error) {
	fields := []struct {
		name string
		bits int
	}{{"job_id", 64}, {"run_lease", 64}, {"claim_slot", 32}, {"receipt_id", 64}, {"batch_id", 64}, {"batch_index", 32}}
	values := make([]any, len(fields))
	for i, field := range fields {
		text := of.Token[field.name]
		if text == nil {
			continue
		}
		value, err := strconv.ParseInt(*text, 10, field.bits)
		if err != nil {
			return nil, err
		}
		values[i] = value
	}
	return values, nil
}

// More than 64 KiB of text that does not compress to less.
func oversized() string {
	var text strings.Builder
	for i := uint32(0); i < 30_000; i++ {
		text.WriteString(strconv.FormatUint(uint64(i*2654435761), 36))
	}
	return `{"text":"` + text.String() + `"}`
}

// An interpreter does the steps of one attempt.
type interpreter struct {
	attempt     attempt
	completions []completion
	pause       func() error
}

func (in *interpreter) all(tx Statements, steps []step) error {
	for _, step := range steps {
		if err := in.one(tx, step); err != nil && !step.Swallow {
			return err
		}
	}
	return nil
}

func (in *interpreter) one(tx Statements, step step) error {
	switch step.Do {
	case "write":
		return tx.Exec(write, in.attempt.Tag)
	case "expect":
		values, err := in.attempt.parameters()
		if err != nil {
			return err
		}
		return tx.Exec(expect, values...)
	case "complete":
		return in.complete(tx, step.Progress)
	case "enqueue":
		return tx.Exec(enqueue)
	case "immediate":
		return tx.Exec(asked)
	case "raise":
		return errApplication
	case "pause":
		return in.pause()
	case "nested":
		return tx.Nested(func(inner Statements) error { return in.all(inner, step.Steps) })
	}
	return fmt.Errorf("no such step: %s", step.Do)
}

func (in *interpreter) complete(tx Statements, progress *string) error {
	values, err := in.attempt.parameters()
	if err != nil {
		return err
	}
	if progress != nil && *progress == "oversized" {
		text := oversized()
		progress = &text
	}
	jobID, outcome, err := tx.Complete(complete, append(values, progress)...)
	if err == nil {
		in.completions = append(in.completions, completion{strconv.FormatInt(jobID, 10), outcome})
	}
	return err
}

func endOf(err error) string {
	var refused *pgconn.PgError
	switch {
	case err == nil:
		return "committed"
	case errors.Is(err, errApplication):
		return "application"
	case errors.As(err, &refused):
		return refused.Code
	}
	return "none"
}

func run(db Database, asked request, of attempt, pause func() error) result {
	in := interpreter{attempt: of, completions: []completion{}, pause: pause}
	body := func(tx Statements) error { return in.all(tx, asked.Steps) }
	var err error
	if asked.Transaction == nil {
		err = body(db.Alone())
	} else {
		err = db.Transaction(*asked.Transaction, body)
	}
	ended := result{End: endOf(err), Completions: in.completions}
	if err != nil {
		ended.Message = err.Error()
	}
	return ended
}

func serve(driver string) error {
	connect, known := open[driver]
	if !known {
		return fmt.Errorf("no such driver: %s", driver)
	}
	input, output := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	pause := func() error {
		if err := output.Encode(map[string]bool{"paused": true}); err != nil {
			return err
		}
		_, err := input.ReadString('\n')
		return err
	}
	var db Database
	var url string
	for {
		line, err := input.ReadBytes('\n')
		if err != nil {
			return nil // nobody asks any more
		}
		var asked request
		if err := json.Unmarshal(line, &asked); err != nil {
			return err
		}
		if asked.URL != url {
			if db != nil {
				db.Close()
			}
			if db, err = connect(context.Background(), asked.URL); err != nil {
				return err
			}
			url = asked.URL
		}
		given := answer{Results: []result{}}
		begun := time.Now()
		for _, of := range asked.Attempts {
			given.Results = append(given.Results, run(db, asked, of, pause))
		}
		given.Micros = time.Since(begun).Microseconds()
		if err := output.Encode(given); err != nil {
			return err
		}
	}
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "the name of a driver is wanted")
		os.Exit(2)
	}
	if err := serve(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
