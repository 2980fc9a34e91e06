//! `conformance <driver>`: puts one driver through the cases that it is sent; ../README.md says how.

mod protocol;
mod session;
mod drivers {
    #[cfg(feature = "seaorm")]
    pub mod seaorm;
    #[cfg(feature = "sqlx")]
    pub mod sqlx;
    #[cfg(feature = "tokio-postgres")]
    pub mod tokio_postgres;
}

use protocol::{read_line, Answer, Attempt, Outcome, Request};
use session::{Driver, Failure};
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match name.as_str() {
        #[cfg(feature = "tokio-postgres")]
        "tokio-postgres" => runtime.block_on(serve::<drivers::tokio_postgres::Connected>()),
        #[cfg(feature = "sqlx")]
        "sqlx" => runtime.block_on(serve::<drivers::sqlx::Connected>()),
        #[cfg(feature = "seaorm")]
        "seaorm" => runtime.block_on(serve::<drivers::seaorm::Connected>()),
        _ => Err(format!("no such driver: {name}").into()),
    }
}

/// Answers until the harness has gone; the connection is kept for as long as the url is the same.
async fn serve<D: Driver>() -> Result<(), Box<dyn Error>> {
    let mut connected: Option<(String, D)> = None;
    while let Some(line) = read_line().await {
        let request: Request = serde_json::from_str(&line)?;
        let url = request.url.clone();
        let kept = connected.take().filter(|(of, driver)| *of == url && !driver.is_lost());
        let answer = match kept {
            Some((_, driver)) => Ok(driver),
            None => D::connect(&url).await,
        };
        let answer = match answer {
            Ok(mut driver) => {
                let answer = answer_with(&mut driver, request).await;
                connected = Some((url, driver));
                answer
            }
            Err(failure) => {
                let ended = |_| outcome(Err(Failure::without_state(&failure)), None);
                Answer { results: request.attempts.iter().map(ended).collect(), micros: 0 }
            }
        };
        println!("{}", serde_json::to_string(&answer)?);
    }
    Ok(())
}

async fn answer_with(driver: &mut impl Driver, request: Request) -> Answer {
    let mut results = Vec::new();
    let started = Instant::now();
    for attempt in request.attempts.into_iter().map(Arc::new) {
        let ended = driver.run(request.transaction, request.steps.clone(), attempt.clone()).await;
        results.push(outcome(ended, Some(&attempt)));
    }
    let micros = started.elapsed().as_micros() as u64;
    Answer { results, micros }
}

fn outcome(ended: Result<(), Failure>, attempt: Option<&Attempt>) -> Outcome {
    let message = ended.as_ref().err().map(Failure::to_string);
    let end = match ended {
        Ok(()) => "committed".to_owned(),
        Err(Failure::Application) => "application".to_owned(),
        Err(Failure::Other { state, .. }) => state.unwrap_or_else(|| "none".to_owned()),
    };
    let completions = attempt.and_then(|attempt| attempt.completions.lock().ok().map(|made| made.clone()));
    Outcome { end, message, completions: completions.unwrap_or_default() }
}
