// A reconciling worker in pgx: DATABASE_URL=postgres://... QUEUE=billing go run .
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Job is a claimed attempt; its first six fields are the token that it is known by.
type Job struct {
	JobID      int64           `json:"job_id"`
	RunLease   int64           `json:"run_lease"`
	ClaimSlot  int32           `json:"claim_slot"`
	ReceiptID  int64           `json:"receipt_id"`
	BatchID    int64           `json:"batch_id"`
	BatchIndex int32           `json:"batch_index"`
	Kind       string          `json:"-"`
	Args       json.RawMessage `json:"-"`
	Attempt    int             `json:"-"`
}

var errNothing = errors.New("nothing to book")

// A handler: its rows and its completion commit together, or not at all. ctx ends when the attempt is lost.
func book(ctx context.Context, app *pgxpool.Pool, job *Job) error {
	var args struct{ Account, Amount int64 }
	if err := json.Unmarshal(job.Args, &args); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, app, func(tx pgx.Tx) error {
		if args.Amount == 0 {
			return errNothing
		}
		if _, err := tx.Exec(ctx, "insert into entries (job_id, account, amount) values ($1, $2, $3)", job.JobID, args.Account, args.Amount); err != nil {
			return err
		}
		if tag, err := tx.Exec(ctx, "update accounts set balance = balance + $2 where id = $1", args.Account, args.Amount); err != nil {
			return err
		} else if tag.RowsAffected() == 0 {
			return fmt.Errorf("there is no account %d", args.Account)
		}
		_, err := tx.Exec(ctx, "select awa.complete_job($1, $2, $3, $4, $5, $6)", job.JobID, job.RunLease, job.ClaimSlot, job.ReceiptID, job.BatchID, job.BatchIndex)
		return err
	})
}

var handlers = map[string]func(context.Context, *pgxpool.Pool, *Job) error{"book": book}

type current struct {
	job    *Job
	cancel context.CancelFunc
}

type worker struct {
	own, app *pgxpool.Pool // the worker's own connections, and those of the handlers
	id       int64
	now      atomic.Pointer[current]
}

func (w *worker) beat(ctx context.Context) {
	every, err := time.ParseDuration(os.Getenv("BEAT_SECONDS") + "s") // rescue takes what was not beaten for in 60 seconds
	if err != nil {
		every = 15 * time.Second
	}
	for range time.Tick(every) {
		attempts, now := []*Job{}, w.now.Load()
		if now != nil {
			attempts = append(attempts, now.job)
		}
		var lost int
		if err := w.own.QueryRow(ctx, "select count(*) from awa.worker_beat($1, $2)", w.id, attempts).Scan(&lost); err != nil {
			log.Println("no beat:", err)
		} else if lost > 0 {
			log.Println("the attempt is not ours any more")
			now.cancel()
		}
	}
}

// After every exit: durable evidence decides, whatever the handler says. No answer is asked for again, nothing is guessed.
func (w *worker) reconcile(ctx context.Context, job *Job, failure error) string {
	outcome := "retried"
	var state *pgconn.PgError
	if errors.Is(failure, errNothing) {
		outcome = "discarded"
	} else if errors.As(failure, &state) && state.Code == "WA006" {
		outcome = "gated" // put aside, not counted, until the queue is enabled
	} else if failure == nil {
		failure = errors.New("the handler returned without complete_job")
	}
	detail := map[string]any{"error": map[string]string{"name": fmt.Sprintf("%T", failure), "message": failure.Error()}, "delay_ms": 1000 << min(job.Attempt, 10)}
	until, pause := time.Now().Add(30*time.Second), 50*time.Millisecond
	for ; time.Now().Before(until); pause = min(2*pause, 2*time.Second) {
		var status, ended, answer string
		step, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := w.own.QueryRow(step, "select status, coalesce(outcome, '') from awa.worker_evidence($1)", []*Job{job}).Scan(&status, &ended)
		if err == nil && status == "open" {
			err = w.own.QueryRow(step, "select awa.worker_settle($1, $2, $3)", job, outcome, detail).Scan(&answer)
		}
		cancel()
		switch {
		case err != nil || status == "unknown" || answer == "busy" || answer == "stale":
			time.Sleep(pause)
		case answer != "":
			return outcome
		case ended == "completed":
			return "accepted"
		default:
			return "stale" // somebody else's end of the attempt is left alone
		}
	}
	return "unresolved" // nothing more is done to it: rescue takes the attempt
}

func (w *worker) run(ctx context.Context, job *Job) (failure error) {
	defer func() {
		if reason := recover(); reason != nil {
			failure = fmt.Errorf("panic: %v", reason)
		}
	}()
	handler, ok := handlers[job.Kind]
	if !ok {
		return fmt.Errorf("there is no handler of %s", job.Kind)
	}
	return handler(ctx, w.app, job)
}

const claim = `select coalesce(job_id, 0), coalesce(run_lease, 0), coalesce(claim_slot, 0), coalesce(receipt_id, 0), coalesce(batch_id, 0),
  coalesce(batch_index, 0), coalesce(kind, ''), coalesce(args, 'null'), coalesce(attempt, 0), coalesce(retry_ms, 0) from awa.worker_claim($1, $2, 1)`

// Takes one job and sees it through. Answers how long to wait before the next.
func (w *worker) step(ctx context.Context, queue string) time.Duration {
	job, retry := &Job{}, 0
	err := w.own.QueryRow(ctx, claim, w.id, queue).Scan(&job.JobID, &job.RunLease, &job.ClaimSlot, &job.ReceiptID, &job.BatchID,
		&job.BatchIndex, &job.Kind, &job.Args, &job.Attempt, &retry)
	if errors.Is(err, pgx.ErrNoRows) {
		return 200 * time.Millisecond
	} else if err != nil {
		log.Println("no claim:", err)
		return time.Second
	} else if job.JobID == 0 {
		return time.Duration(retry) * time.Millisecond
	}
	work, cancel := context.WithCancel(ctx)
	w.now.Store(&current{job, cancel})
	fmt.Printf("job %d attempt %d: %s\n", job.JobID, job.Attempt, w.reconcile(ctx, job, w.run(work, job)))
	w.now.Store(nil)
	cancel()
	return 0
}

func must[A any](value A, err error) A {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	ctx := context.Background()
	stopped, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	url := os.Getenv("DATABASE_URL")
	w := &worker{own: must(pgxpool.New(ctx, url)), app: must(pgxpool.New(ctx, url))}
	must(0, w.own.QueryRow(ctx, "select awa.worker_register($1)", fmt.Sprintf("go %d", os.Getpid())).Scan(&w.id))
	go w.beat(ctx)
	for stopped.Err() == nil {
		time.Sleep(w.step(ctx, os.Getenv("QUEUE")))
	}
	must(w.own.Exec(ctx, "select awa.worker_retire($1)", w.id))
}
