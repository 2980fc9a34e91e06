//! The requests that run a worker.
use crate::measure::{quantiles, Begun, Timeline};
use crate::{enqueue_one, Answer, Bench, Failure};
use awa::{Client, ClientBuilder, JobArgs, JobContext, JobError, JobResult, QueueConfig, Worker};
use serde_json::json;
use sqlx::PgPool;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::time::{sleep, sleep_until};

pub const WORKERS: u32 = 2_048;
/// Claims of this size drained faster here than awa's default of 512.
pub const CLAIM_BATCH: usize = 2_048;
/// Handlers that hold a transaction: as many as there are connections for them.
pub const OWNED_WORKERS: u32 = 32;
const GRACE: Duration = Duration::from_secs(10);

pub fn queue_name(index: usize) -> String {
    format!("bench_{index}")
}

pub fn builder(pool: &PgPool, queues: usize, workers: u32, deadline: Duration) -> ClientBuilder {
    let each = QueueConfig {
        max_workers: (workers / queues as u32).max(1),
        poll_interval: Duration::from_millis(50),
        deadline_duration: deadline,
        claim_batch_size: CLAIM_BATCH,
        ..QueueConfig::default()
    };
    (0..queues).fold(Client::builder(pool.clone()), |builder, index| builder.queue(queue_name(index), each.clone()))
}

/// How often each job ran, and when.
struct Runs {
    times: Vec<AtomicU32>,
    handled: AtomicUsize,
    timeline: Timeline,
}

impl Runs {
    fn of(jobs: usize, begun: Instant) -> Arc<Self> {
        let times = (0..jobs).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Self { times, handled: AtomicUsize::new(0), timeline: Timeline::since(begun) })
    }

    fn count(&self, n: usize) {
        if let Some(times) = self.times.get(n) {
            times.fetch_add(1, Ordering::Relaxed);
        }
        self.timeline.count();
        self.handled.fetch_add(1, Ordering::Release);
    }

    fn check(&self) -> Result<(), Failure> {
        match self.times.iter().position(|times| times.load(Ordering::Relaxed) != 1) {
            None => Ok(()),
            Some(n) => Err(format!("job {n} ran {} times", self.times[n].load(Ordering::Relaxed)).into()),
        }
    }
}

/// Completed jobs, from the three tables where queue storage keeps them. (Its own `queue_counts` tells the same, but its
/// exact count of running jobs took longer than the drain it would have ended.)
async fn completed(pool: &PgPool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "select (select coalesce(sum(completed_count), 0) from awa.receipt_completion_batches)::bigint
            + (select count(*) from awa.done_entries where state = 'completed')
            + (select coalesce(sum(pruned_completed_count), 0) from awa.queue_terminal_rollups)::bigint",
    )
    .fetch_one(pool)
    .await
}

pub async fn drain(pool: &PgPool, jobs: usize, queues: usize) -> Answer {
    let before = completed(pool).await?;
    let begun = Begun::now();
    let runs = Runs::of(jobs, begun.at);
    let counting = runs.clone();
    let client = builder(pool, queues, WORKERS, Duration::ZERO)
        .register::<Bench, _, _>(move |bench, _| {
            counting.count(bench.n);
            async { Ok(JobResult::Completed) }
        })
        .build()?;
    until_done(pool, &client, runs, begun, before).await
}

/// How a job's completion belongs to the application's transaction.
#[derive(Clone, Copy, PartialEq)]
pub enum Lane {
    /// The handler commits its transaction, then awa completes the job.
    Separate,
    /// The transaction completes the job by way of a callback that was registered and committed before.
    Callback,
}

pub async fn owned(pool: &PgPool, application: PgPool, jobs: usize, lane: Lane) -> Answer {
    let before = completed(pool).await?;
    let begun = Begun::now();
    let runs = Runs::of(jobs, begun.at);
    let handler = Owned { application, lane, runs: runs.clone() };
    // Without a deadline a claim is part of a batch, and a callback for one of them reads the whole batch.
    let deadline = if lane == Lane::Callback { QueueConfig::default().deadline_duration } else { Duration::ZERO };
    let client = builder(pool, 1, OWNED_WORKERS, deadline).register_worker(handler).build()?;
    until_done(pool, &client, runs, begun, before).await
}

struct Owned {
    application: PgPool,
    lane: Lane,
    runs: Arc<Runs>,
}

#[async_trait::async_trait]
impl Worker for Owned {
    fn kind(&self) -> &'static str {
        Bench::kind()
    }

    async fn perform(&self, context: &JobContext) -> Result<JobResult, JobError> {
        self.handle(context).await.map_err(JobError::retryable_msg)
    }
}

impl Owned {
    async fn handle(&self, context: &JobContext) -> Result<JobResult, Failure> {
        let bench: Bench = serde_json::from_value(context.job.args.clone())?;
        self.runs.count(bench.n);
        let callback = match self.lane {
            Lane::Separate => None,
            Lane::Callback => Some(context.register_callback(Duration::from_secs(60)).await?),
        };
        let mut transaction = self.application.begin().await?;
        sqlx::query("update bench_accounts set n = n + 1 where id = $1")
            .bind((bench.n % 1000 + 1) as i32)
            .execute(transaction.as_mut())
            .await?;
        if let Some(callback) = &callback {
            let store = context.queue_storage_store().ok_or("queue storage is not active")?;
            let lease = Some(context.job.run_lease);
            store.complete_external_in_tx(&mut transaction, callback.id(), None, lease, false).await?;
        }
        transaction.commit().await?;
        // With a callback, awa finds the job completed.
        Ok(callback.map_or(JobResult::Completed, JobResult::WaitForCallback))
    }
}

/// Starts the worker, and waits until as many jobs more as asked for are durably completed.
async fn until_done(pool: &PgPool, client: &Client, runs: Arc<Runs>, begun: Begun, before: i64) -> Answer {
    let jobs = runs.times.len();
    client.start().await?;
    while runs.handled.load(Ordering::Acquire) < jobs {
        sleep(Duration::from_millis(1)).await;
    }
    while completed(pool).await? - before < jobs as i64 {
        sleep(Duration::from_millis(2)).await;
    }
    let mut result = begun.measured(jobs);
    result["timeline"] = json!(runs.timeline.counts());
    client.shutdown(GRACE).await;
    runs.check()?;
    match completed(pool).await? - before {
        done if done == jobs as i64 => Ok(result),
        done => Err(format!("{jobs} jobs asked for, {done} completed in the tables").into()),
    }
}

/// Counts in the tables, second by second: awa's handlers run ahead of their completions.
pub async fn work(pool: &PgPool, seconds: f64) -> Answer {
    let client = builder(pool, 1, WORKERS, Duration::ZERO)
        .register::<Bench, _, _>(|_, _| async { Ok(JobResult::Completed) })
        .build()?;
    let mut timeline = Vec::new();
    let mut before = completed(pool).await?;
    client.start().await?;
    let mut second = tokio::time::interval(Duration::from_secs(1));
    second.tick().await;
    for _ in 0..seconds as usize {
        second.tick().await;
        let now = completed(pool).await?;
        timeline.push(now - before);
        before = now;
    }
    client.shutdown(GRACE).await;
    Ok(json!({ "timeline": timeline }))
}

pub async fn idle(pool: &PgPool, seconds: f64) -> Answer {
    let client = builder(pool, 1, WORKERS, Duration::ZERO)
        .register::<Bench, _, _>(|_, _| async { Ok(JobResult::Completed) })
        .build()?;
    client.start().await?;
    sleep(Duration::from_secs_f64(seconds)).await;
    client.shutdown(GRACE).await;
    Ok(json!({}))
}

/// Enqueues singly at a fixed rate, whether or not the one before has returned.
pub async fn latency(pool: &PgPool, per_second: f64, seconds: f64) -> Answer {
    let warm = 50; // the first jobs open connections
    let count = warm + (per_second * seconds) as usize;
    let started: Arc<Vec<OnceLock<Instant>>> = Arc::new((0..count).map(|_| OnceLock::new()).collect());
    let stamping = started.clone();
    let client = builder(pool, 1, WORKERS, Duration::ZERO)
        .register::<Bench, _, _>(move |bench, _| {
            if let Some(at) = stamping.get(bench.n) {
                at.get_or_init(Instant::now);
            }
            async { Ok(JobResult::Completed) }
        })
        .build()?;
    client.start().await?;
    sleep(Duration::from_secs(1)).await; // the worker listens
    let begun = tokio::time::Instant::now();
    let inserting: Vec<_> = (0..count)
        .map(|n| {
            let pool = pool.clone();
            tokio::spawn(async move {
                sleep_until(begun + Duration::from_secs_f64(n as f64 / per_second)).await;
                enqueue_one(&pool, n).await.map(|()| Instant::now())
            })
        })
        .collect();
    let mut returned = Vec::with_capacity(count);
    for insert in inserting {
        returned.push(insert.await??);
    }
    let until = Instant::now() + Duration::from_secs(30);
    while started.iter().any(|at| at.get().is_none()) {
        if Instant::now() > until {
            return Err("some jobs were not started within 30 s".into());
        }
        sleep(Duration::from_millis(20)).await;
    }
    client.shutdown(GRACE).await;
    // A handler may start before its insert has returned: no wait.
    let waits = started.iter().zip(&returned).skip(warm);
    let millis = waits.filter_map(|(at, returned)| at.get().map(|at| at.saturating_duration_since(*returned)));
    Ok(quantiles(millis.map(|wait| wait.as_secs_f64() * 1000.0).collect()))
}
