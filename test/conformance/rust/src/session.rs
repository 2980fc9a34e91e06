//! What the cases need of a driver, and the steps of a case in its terms.

use crate::protocol::{pause, Action, Attempt, Completion, Isolation, Step, Steps, Token};
use serde_json::Value;
use std::fmt::{self, Display};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

pub const ENQUEUE: &str = "select * from awa.insert_job('conformance-follow-up', '{}', 'other')";
pub const IMMEDIATE: &str = "set constraints all immediate";

#[derive(Debug)]
pub enum Failure {
    /// The application's own error.
    Application,
    /// An error of the driver, with the SQLSTATE when the server sent one, or of what was refused before it was sent.
    Other { state: Option<String>, message: String },
}

impl Failure {
    pub fn without_state(error: impl Display) -> Self {
        Failure::Other { state: None, message: error.to_string() }
    }
}

impl Display for Failure {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Application => write!(to, "the application's own error"),
            Failure::Other { message, .. } => write!(to, "{message}"),
        }
    }
}

/// A driver, connected.
pub trait Driver: Sized {
    fn connect(url: &str) -> impl Future<Output = Result<Self, Failure>>;
    /// The connection was lost, and does not come back by itself.
    fn is_lost(&self) -> bool;
    /// All steps in one transaction; without an isolation level each by itself.
    fn run(
        &mut self,
        isolation: Option<Isolation>,
        steps: Steps,
        attempt: Arc<Attempt>,
    ) -> impl Future<Output = Result<(), Failure>>;
}

/// What can be said in a transaction, or outside any.
pub trait Session: Send {
    fn write(&mut self, tag: &str) -> impl Future<Output = Result<(), Failure>> + Send;
    fn expect(&mut self, token: Token) -> impl Future<Output = Result<(), Failure>> + Send;
    fn complete(
        &mut self,
        token: Token,
        progress: Option<Value>,
    ) -> impl Future<Output = Result<Completion, Failure>> + Send;
    /// A statement without parameters.
    fn execute(&mut self, sql: &'static str) -> impl Future<Output = Result<(), Failure>> + Send;
    /// The steps in a nested transaction, which is rolled back alone when they fail.
    fn nested(&mut self, steps: Steps, attempt: Arc<Attempt>) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// The steps one after the other, until one fails. (Boxed: steps are nested in steps.)
pub fn all<'a>(
    session: &'a mut impl Session,
    steps: Steps,
    attempt: Arc<Attempt>,
) -> Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>> {
    Box::pin(async move {
        for Step { action, swallow } in steps.iter() {
            match one(session, action, &attempt).await {
                Err(_) if *swallow => {}
                ended => ended?,
            }
        }
        Ok(())
    })
}

async fn one(session: &mut impl Session, action: &Action, attempt: &Arc<Attempt>) -> Result<(), Failure> {
    let token = || attempt.token().map_err(Failure::without_state);
    match action {
        Action::Write => session.write(&attempt.tag).await,
        Action::Expect => session.expect(token()?).await,
        Action::Complete { progress } => {
            let progress = progress.as_deref().map(json).transpose()?;
            let completion = session.complete(token()?, progress).await?;
            attempt.completions.lock().map_err(Failure::without_state)?.push(completion);
            Ok(())
        }
        Action::Enqueue => session.execute(ENQUEUE).await,
        Action::Immediate => session.execute(IMMEDIATE).await,
        Action::Raise => Err(Failure::Application),
        Action::Pause => {
            pause().await;
            Ok(())
        }
        Action::Nested { steps } => session.nested(steps.clone(), attempt.clone()).await,
    }
}

fn json(progress: &str) -> Result<Value, Failure> {
    match progress {
        "oversized" => Ok((0..30_000u32).map(|i| format!("{:x}", i.wrapping_mul(2_654_435_761))).collect()),
        text => serde_json::from_str(text).map_err(Failure::without_state),
    }
}
