//! awa's Rust crate as a peer of the benchmark: takes one request as JSON in its last argument, logs to stderr and
//! prints one line of JSON. With `--callback` before the request it is the peer that completes jobs in the application's
//! transaction, which awa 0.6 can do only by way of a callback.
//!
//! Configuration: queue storage (awa's default engine) with its default slots; 2,048 workers shared out over the
//! queues, no per-job deadline (which awa names as its short path: compact claims and completions), claims of up to
//! 2,048, completions in batches of 512 (default), bulk inserts by `enqueue_params_copy`.
mod measure;
mod worker;

use awa::{migrations, Client, InsertOpts, InsertParams, QueueStorage, QueueStorageConfig};
use measure::{warm_up, Begun};
use serde::{Deserialize, Serialize};
use serde_json::{json, Value};
use sqlx::postgres::{PgPool, PgPoolOptions};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use worker::Lane;

pub type Failure = Box<dyn std::error::Error + Send + Sync>;
pub type Answer = Result<Value, Failure>;

const BATCH: usize = 1_000;
/// Inserts under way at once.
const CALLS: usize = 2;

#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
enum Request {
    Describe,
    Install {
        url: String,
    },
    Enqueue {
        url: String,
        jobs: usize,
        queues: usize,
    },
    Drain {
        url: String,
        jobs: usize,
        queues: usize,
        processes: usize,
    },
    Owned {
        url: String,
        jobs: usize,
    },
    #[serde(rename_all = "camelCase")]
    Latency {
        url: String,
        per_second: f64,
        seconds: f64,
    },
    Work {
        url: String,
        seconds: f64,
    },
    Idle {
        url: String,
        seconds: f64,
    },
    #[serde(other)]
    Other,
}

#[derive(Clone, Serialize, Deserialize, awa::JobArgs)]
#[awa(kind = "bench")]
pub struct Bench {
    pub n: usize,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (lane, text) = match arguments.as_slice() {
        [text] => (Lane::Separate, text),
        [flag, text] if flag == "--callback" => (Lane::Callback, text),
        _ => return Err("usage: awa-peer [--callback] '<request JSON>'".into()),
    };
    println!("{}", answer(serde_json::from_str(text)?, lane).await?);
    Ok(())
}

async fn answer(request: Request, lane: Lane) -> Answer {
    match request {
        Request::Describe => Ok(describe(lane)),
        Request::Install { url } => install(&connect(&url, 4).await?).await,
        Request::Enqueue { url, jobs, queues } => enqueue(&connect(&url, 4).await?, jobs, queues).await,
        Request::Drain { .. } | Request::Latency { .. } | Request::Work { .. } | Request::Idle { .. }
            if lane == Lane::Callback =>
        {
            Ok(json!({ "unsupported": "only its caller-owned lane differs" }))
        }
        Request::Drain { processes, .. } if processes != 1 => {
            Ok(json!({ "unsupported": "one process is one worker: start several" }))
        }
        Request::Drain { url, jobs, queues, .. } => worker::drain(&connect(&url, 20).await?, jobs, queues).await,
        Request::Owned { url, jobs } => {
            // The application's own pool, so that a handler's transaction never waits behind awa's statements.
            let application = connect(&url, worker::OWNED_WORKERS).await?;
            worker::owned(&connect(&url, 20).await?, application, jobs, lane).await
        }
        Request::Latency { url, per_second, seconds } => {
            worker::latency(&connect(&url, 20).await?, per_second, seconds).await
        }
        Request::Work { url, seconds } => worker::work(&connect(&url, 20).await?, seconds).await,
        Request::Idle { url, seconds } => worker::idle(&connect(&url, 20).await?, seconds).await,
        Request::Other => Ok(json!({ "unsupported": "no request of this name" })),
    }
}

fn describe(lane: Lane) -> Value {
    json!({
        "name": if lane == Lane::Callback { "awa (Rust), by callback" } else { "awa (Rust)" },
        "version": env!("AWA_VERSION"),
        "runtime": concat!("Rust ", env!("RUSTC_VERSION")),
        "configuration": format!(
            "queue storage (default), {} workers, deadline_duration 0 (compact claims), claim_batch_size {}, completion batches of 512 (default), \
             enqueue_params_copy by {BATCH}, {CALLS} at once; owned: {} workers on a pool of {}{}",
            worker::WORKERS,
            worker::CLAIM_BATCH,
            worker::OWNED_WORKERS,
            worker::OWNED_WORKERS,
            if lane == Lane::Callback { ", default deadline_duration" } else { "" }
        ),
        "guarantee": "at least once, fenced by (job id, run_lease); a dead worker's jobs are rescued when their heartbeat is stale (default 90 s)",
        "atomic": lane == Lane::Callback,
        "owned": match lane {
            Lane::Separate => "separate transactions: the handler commits its update, then awa completes the job (batched); a crash between them repeats the update",
            Lane::Callback => "same transaction, by way of a callback: register_callback commits first, then complete_external_in_tx beside the update",
        },
    })
}

async fn connect(url: &str, size: u32) -> Result<PgPool, sqlx::Error> {
    PgPoolOptions::new().max_connections(size).connect(url).await
}

/// A fresh database comes to queue storage when its first worker starts, before there is any job.
async fn install(pool: &PgPool) -> Answer {
    migrations::run(pool).await?;
    let client: Client = worker::builder(pool, 1, 1, Duration::ZERO)
        .register::<Bench, _, _>(|_, _| async { Ok(awa::JobResult::Completed) })
        .build()?;
    client.start().await?;
    client.shutdown(Duration::from_secs(5)).await;
    match QueueStorage::active_schema(pool).await? {
        Some(_) => Ok(json!({})),
        None => Err("queue storage is not active".into()),
    }
}

fn params(from: usize, to: usize, queues: usize) -> Result<Vec<InsertParams>, awa::AwaError> {
    let of = |n: usize| InsertOpts { queue: worker::queue_name(n % queues), ..InsertOpts::default() };
    (from..to).map(|n| awa::model::insert::params_with(&Bench { n }, of(n))).collect()
}

async fn enqueue(pool: &PgPool, jobs: usize, queues: usize) -> Answer {
    let store = QueueStorage::new(QueueStorageConfig::default())?;
    let warm = warm_up(jobs);
    store.enqueue_params_copy(pool, &params(0, warm, queues)?).await?;
    let begun = Begun::now();
    let next = AtomicUsize::new(warm);
    let lane = || async {
        loop {
            let from = next.fetch_add(BATCH, Ordering::Relaxed);
            if from >= jobs {
                return Ok::<(), Failure>(());
            }
            store.enqueue_params_copy(pool, &params(from, jobs.min(from + BATCH), queues)?).await?;
        }
    };
    futures::future::try_join_all((0..CALLS).map(|_| lane())).await?;
    Ok(begun.measured(jobs - warm))
}

pub async fn enqueue_one(pool: &PgPool, n: usize) -> Result<(), awa::AwaError> {
    let opts = InsertOpts { queue: worker::queue_name(0), ..InsertOpts::default() };
    awa::insert_with(pool, &Bench { n }, opts).await.map(drop)
}
