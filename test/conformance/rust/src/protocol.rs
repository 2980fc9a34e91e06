//! What the harness asks, what a program answers, and the two ways of reading and writing a line.

use serde::{Deserialize, Serialize};
use std::num::ParseIntError;
use std::sync::{Arc, Mutex};

#[derive(Deserialize)]
pub struct Request {
    pub url: String,
    pub transaction: Option<Isolation>,
    pub attempts: Vec<Attempt>,
    pub steps: Steps,
}

#[derive(Clone, Copy, Deserialize)]
pub enum Isolation {
    #[serde(rename = "read committed")]
    ReadCommitted,
    #[serde(rename = "repeatable read")]
    RepeatableRead,
    #[serde(rename = "serializable")]
    Serializable,
}

/// Shared, so that a driver's transaction closure can own them.
pub type Steps = Arc<[Step]>;

#[derive(Deserialize)]
pub struct Step {
    #[serde(flatten)]
    pub action: Action,
    #[serde(default)]
    pub swallow: bool,
}

#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Action {
    Write,
    Expect,
    Complete { progress: Option<String> },
    Enqueue,
    Immediate,
    Raise,
    Pause,
    Nested { steps: Steps },
}

#[derive(Deserialize)]
pub struct Attempt {
    pub tag: String,
    token: TokenText,
    #[serde(skip)]
    pub completions: Mutex<Vec<Completion>>,
}

#[derive(Deserialize)]
struct TokenText {
    job_id: Option<String>,
    run_lease: Option<String>,
    claim_slot: Option<String>,
    receipt_id: Option<String>,
    batch_id: Option<String>,
    batch_index: Option<String>,
}

/// A token as its worker passed it on. An application has no null in it; the cases have, and the server refuses it.
pub struct Token {
    pub job_id: Option<i64>,
    pub run_lease: Option<i64>,
    pub claim_slot: Option<i32>,
    pub receipt_id: Option<i64>,
    pub batch_id: Option<i64>,
    pub batch_index: Option<i32>,
}

impl Attempt {
    pub fn token(&self) -> Result<Token, ParseIntError> {
        let bigint = |text: &Option<String>| text.as_ref().map(|text| text.parse::<i64>()).transpose();
        let integer = |text: &Option<String>| text.as_ref().map(|text| text.parse::<i32>()).transpose();
        Ok(Token {
            job_id: bigint(&self.token.job_id)?,
            run_lease: bigint(&self.token.run_lease)?,
            claim_slot: integer(&self.token.claim_slot)?,
            receipt_id: bigint(&self.token.receipt_id)?,
            batch_id: bigint(&self.token.batch_id)?,
            batch_index: integer(&self.token.batch_index)?,
        })
    }
}

#[derive(Clone, Serialize)]
pub struct Completion {
    pub job_id: String,
    pub outcome: String,
}

#[derive(Serialize)]
pub struct Answer {
    pub results: Vec<Outcome>,
    pub micros: u64,
}

#[derive(Serialize)]
pub struct Outcome {
    pub end: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    pub completions: Vec<Completion>,
}

/// The next line of the harness; none when it has gone. On a thread that may block, so that connections are served meanwhile.
pub async fn read_line() -> Option<String> {
    let line = tokio::task::spawn_blocking(|| std::io::stdin().lines().next());
    line.await.ok().flatten()?.ok()
}

pub async fn pause() {
    println!("{{\"paused\":true}}");
    read_line().await;
}
