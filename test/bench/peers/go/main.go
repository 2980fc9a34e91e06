// Command river is River's adapter for the benchmark: it takes one request as
// JSON in its first argument, logs to stderr and prints one line of JSON.
//
// Configuration: one client per process, MaxWorkers 2,000 shared out over the
// queues, FetchCooldown 2 ms ("throughput is limited by this value" says
// River's documentation), River's batch completer (its default), bulk inserts
// by InsertManyFast (COPY).
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const (
	maxWorkers   = 2_000
	ownedWorkers = 32 // handlers that hold a transaction: as many as there are connections for them
	batchSize    = 5_000
	calls        = 2 // inserts under way at once
	warmUp       = 100
)

type request struct {
	Do        string  `json:"do"`
	URL       string  `json:"url"`
	Jobs      int     `json:"jobs"`
	Queues    int     `json:"queues"`
	Processes int     `json:"processes"`
	PerSecond float64 `json:"perSecond"`
	Seconds   float64 `json:"seconds"`
}

type answer map[string]any

func main() {
	var asked request
	if len(os.Args) != 2 {
		fail(fmt.Errorf("usage: river '<request JSON>'"))
	}
	if err := json.Unmarshal([]byte(os.Args[1]), &asked); err != nil {
		fail(err)
	}
	if asked.Queues < 1 {
		asked.Queues = 1
	}
	result, err := answerTo(context.Background(), asked)
	if err != nil {
		fail(err)
	}
	line, err := json.Marshal(result)
	if err != nil {
		fail(err)
	}
	fmt.Println(string(line))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "river:", err)
	os.Exit(1)
}

func answerTo(ctx context.Context, asked request) (answer, error) {
	if asked.Do == "describe" {
		return describe(), nil
	}
	pool, err := connect(ctx, asked.URL, 20)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	switch asked.Do {
	case "install":
		return install(ctx, pool)
	case "enqueue":
		return enqueue(ctx, pool, asked)
	case "drain":
		if asked.Processes > 1 {
			return answer{"unsupported": "one process is one worker: start several"}, nil
		}
		return drain(ctx, pool, nil, maxWorkers, asked)
	case "owned":
		// The application's own pool, so that a handler's transaction never waits behind River's statements.
		application, err := connect(ctx, asked.URL, ownedWorkers)
		if err != nil {
			return nil, err
		}
		defer application.Close()
		asked.Queues = 1
		return drain(ctx, pool, application, ownedWorkers, asked)
	case "latency":
		return latency(ctx, pool, asked)
	case "work":
		return work(ctx, pool, asked)
	case "idle":
		worker, err := newWorker(pool, &noop{}, asked.Queues, maxWorkers)
		if err != nil {
			return nil, err
		}
		if err := worker.Start(ctx); err != nil {
			return nil, err
		}
		time.Sleep(seconds(asked.Seconds))
		return answer{}, worker.StopAndCancel(ctx)
	}
	return answer{"unsupported": "no request of this name: " + asked.Do}, nil
}

func describe() answer {
	version := "unknown"
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if module.Path == "github.com/riverqueue/river" {
				version = strings.TrimPrefix(module.Version, "v")
			}
		}
	}
	return answer{
		"name":    "River",
		"version": version,
		"runtime": "Go " + strings.TrimPrefix(runtime.Version(), "go"),
		"configuration": fmt.Sprintf("riverpgxv5, MaxWorkers %d, FetchCooldown 2 ms, batch completer (default), InsertManyFast by %d, %d at once; owned: %d workers, pool of %d",
			maxWorkers, batchSize, calls, ownedWorkers, ownedWorkers),
		"guarantee": "at least once; jobs of a dead worker stay running until the rescuer takes them (RescueStuckJobsAfter, default 1 h); completions are batched in memory",
		"owned":     "same transaction, by river.JobCompleteTx; updates by id and state 'running', without an attempt's fence",
		"atomic":    true,
	}
}

func connect(ctx context.Context, url string, size int32) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = size
	return pgxpool.NewWithConfig(ctx, config)
}

func install(ctx context.Context, pool *pgxpool.Pool) (answer, error) {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return nil, err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return answer{}, err
}

func enqueue(ctx context.Context, pool *pgxpool.Pool, asked request) (answer, error) {
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: logger()})
	if err != nil {
		return nil, err
	}
	insert := func(from, to int) error {
		if from == to {
			return nil
		}
		params := make([]river.InsertManyParams, 0, to-from)
		for n := from; n < to; n++ {
			params = append(params, river.InsertManyParams{
				Args:       benchArgs{N: n},
				InsertOpts: &river.InsertOpts{Queue: queueName(n % asked.Queues)},
			})
		}
		_, err := client.InsertManyFast(ctx, params)
		return err
	}
	warm := min(warmUp, asked.Jobs/2)
	if err := insert(0, warm); err != nil {
		return nil, err
	}
	start := begin()
	var next atomic.Int64
	next.Store(int64(warm))
	errs := make(chan error, calls)
	for range calls {
		go func() {
			for {
				from := int(next.Add(batchSize)) - batchSize
				if from >= asked.Jobs {
					errs <- nil
					return
				}
				if err := insert(from, min(from+batchSize, asked.Jobs)); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	for range calls {
		if err := <-errs; err != nil {
			return nil, err
		}
	}
	return start.measured(asked.Jobs - warm), nil
}

func queueName(index int) string { return fmt.Sprintf("bench_%d", index) }

func logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// A measurement's beginning.
type begun struct {
	at  time.Time
	cpu float64
}

func begin() begun { return begun{time.Now(), cpuSeconds()} }

func (b begun) measured(jobs int) answer {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return answer{
		"jobs":       jobs,
		"seconds":    time.Since(b.at).Seconds(),
		"cpuSeconds": cpuSeconds() - b.cpu,
		"peakBytes":  usage.Maxrss * 1024,
	}
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	of := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return of(usage.Utime) + of(usage.Stime)
}
