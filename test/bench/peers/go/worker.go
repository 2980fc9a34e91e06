package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

type benchArgs struct {
	N int `json:"n"`
}

func (benchArgs) Kind() string { return "bench" }

// How often each job ran; empty where nobody asks.
type runs []atomic.Int32

func (r runs) count(n int) {
	if n < len(r) {
		r[n].Add(1)
	}
}

func (r runs) check() error {
	for n := range r {
		if times := r[n].Load(); times != 1 {
			return fmt.Errorf("job %d ran %d times", n, times)
		}
	}
	return nil
}

// The drain's handler: does nothing.
type noop struct {
	river.WorkerDefaults[benchArgs]
	ran runs
}

func (w *noop) Work(_ context.Context, job *river.Job[benchArgs]) error {
	w.ran.count(job.Args.N)
	return nil
}

// The caller-owned lane's handler: an application row and the job's completion in one transaction.
type owned struct {
	river.WorkerDefaults[benchArgs]
	pool *pgxpool.Pool
	ran  runs
}

func (w *owned) Work(ctx context.Context, job *river.Job[benchArgs]) error {
	w.ran.count(job.Args.N)
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "update bench_accounts set n = n + 1 where id = $1", job.Args.N%1000+1); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
}

// The latency's handler: notes when it started.
type stamping struct {
	river.WorkerDefaults[benchArgs]
	started []time.Time
	pending sync.WaitGroup
}

func (w *stamping) Work(_ context.Context, job *river.Job[benchArgs]) error {
	w.started[job.Args.N] = time.Now()
	w.pending.Done()
	return nil
}

func newWorker(pool *pgxpool.Pool, handler river.Worker[benchArgs], queues, workers int) (*river.Client[pgx.Tx], error) {
	registered := river.NewWorkers()
	river.AddWorker(registered, handler)
	configured := make(map[string]river.QueueConfig, queues)
	for index := range queues {
		configured[queueName(index)] = river.QueueConfig{MaxWorkers: max(1, workers/queues)}
	}
	return river.NewClient(riverpgxv5.New(pool), &river.Config{
		FetchCooldown: 2 * time.Millisecond,
		Logger:        logger(),
		Queues:        configured,
		Workers:       registered,
	})
}

// Counts completion events, which River sends once their batch is committed.
type completions struct {
	start    time.Time
	perSec   []int
	total    int
	finished chan struct{}
}

func (c *completions) follow(events <-chan *river.Event, until int) {
	for range events {
		second := int(time.Since(c.start).Seconds())
		for len(c.perSec) <= second {
			c.perSec = append(c.perSec, 0)
		}
		c.perSec[second]++
		c.total++
		if c.total == until {
			break
		}
	}
	close(c.finished)
}

// Until all jobs are completed, as River's own events tell; the table is the judge afterwards.
func drain(ctx context.Context, pool, application *pgxpool.Pool, workers int, asked request) (answer, error) {
	ran := make(runs, asked.Jobs)
	var handler river.Worker[benchArgs] = &noop{ran: ran}
	if application != nil {
		handler = &owned{pool: application, ran: ran}
		if err := application.Ping(ctx); err != nil {
			return nil, err
		}
	}
	worker, err := newWorker(pool, handler, asked.Queues, workers)
	if err != nil {
		return nil, err
	}
	before, err := completed(ctx, pool)
	if err != nil {
		return nil, err
	}
	events, cancel := worker.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: 100_000,
		Kinds:    []river.EventKind{river.EventKindJobCompleted},
	})
	defer cancel()
	start := begin()
	counted := &completions{start: start.at, finished: make(chan struct{})}
	go counted.follow(events, asked.Jobs)
	if err := worker.Start(ctx); err != nil {
		return nil, err
	}
	<-counted.finished
	result := start.measured(asked.Jobs)
	result["timeline"] = counted.perSec
	if err := worker.Stop(ctx); err != nil {
		return nil, err
	}
	after, err := completed(ctx, pool)
	if err != nil {
		return nil, err
	}
	if after-before != asked.Jobs {
		return nil, fmt.Errorf("%d jobs asked for, %d completed in the table", asked.Jobs, after-before)
	}
	return result, ran.check()
}

func completed(ctx context.Context, pool *pgxpool.Pool) (count int, err error) {
	err = pool.QueryRow(ctx, "select count(*) from river_job where state = 'completed'").Scan(&count)
	return count, err
}

func work(ctx context.Context, pool *pgxpool.Pool, asked request) (answer, error) {
	worker, err := newWorker(pool, &noop{}, asked.Queues, maxWorkers)
	if err != nil {
		return nil, err
	}
	events, cancel := worker.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: 100_000,
		Kinds:    []river.EventKind{river.EventKindJobCompleted},
	})
	counted := &completions{start: time.Now(), finished: make(chan struct{})}
	go counted.follow(events, -1)
	if err := worker.Start(ctx); err != nil {
		return nil, err
	}
	time.Sleep(seconds(asked.Seconds))
	cancel()
	<-counted.finished
	timeline := make([]int, int(asked.Seconds))
	copy(timeline, counted.perSec)
	return answer{"timeline": timeline}, worker.Stop(ctx)
}

// Enqueues singly at a fixed rate, each insert by itself, whether or not the one before has returned.
func latency(ctx context.Context, pool *pgxpool.Pool, asked request) (answer, error) {
	const warm = 50 // the first jobs open connections
	count := warm + int(asked.PerSecond*asked.Seconds)
	handler := &stamping{started: make([]time.Time, count)}
	handler.pending.Add(count)
	worker, err := newWorker(pool, handler, 1, maxWorkers)
	if err != nil {
		return nil, err
	}
	if err := worker.Start(ctx); err != nil {
		return nil, err
	}
	time.Sleep(time.Second) // the worker listens
	returned := make([]time.Time, count)
	var inserting sync.WaitGroup
	start := time.Now()
	for n := range count {
		time.Sleep(time.Until(start.Add(seconds(float64(n) / asked.PerSecond))))
		inserting.Go(func() {
			_, err := worker.Insert(ctx, benchArgs{N: n}, &river.InsertOpts{Queue: queueName(0)})
			if err != nil {
				fmt.Fprintln(os.Stderr, "river: insert:", err)
				os.Exit(1)
			}
			returned[n] = time.Now()
		})
	}
	inserting.Wait()
	handler.pending.Wait()
	waits := make([]float64, 0, count)
	for n := warm; n < count; n++ {
		// A handler may start before its insert has returned: no wait.
		waits = append(waits, max(0, handler.started[n].Sub(returned[n]).Seconds()*1000))
	}
	slices.Sort(waits)
	at := func(q float64) float64 { return waits[min(len(waits)-1, int(q*float64(len(waits))))] }
	return answer{
		"samples": len(waits), "p50": at(0.50), "p95": at(0.95), "p99": at(0.99), "max": at(1),
	}, worker.Stop(ctx)
}
