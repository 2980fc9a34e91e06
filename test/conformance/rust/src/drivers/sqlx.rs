//! sqlx: a transaction is rolled back when it is dropped before `commit`, and so is the one nested in it.

use crate::protocol::{Attempt, Completion, Isolation, Steps, Token};
use crate::session::{all, Driver, Failure, Session};
use serde_json::Value;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection, Error, PgConnection, PgPool};
use std::sync::Arc;

const EXPECT: &str = "select awa.expect_completion(job_id => $1, run_lease => $2, claim_slot => $3, receipt_id => $4, \
     batch_id => $5, batch_index => $6)";
const COMPLETE: &str = "select job_id, outcome from awa.complete_job(job_id => $1, run_lease => $2, \
     claim_slot => $3, receipt_id => $4, batch_id => $5, batch_index => $6, progress => $7)";

pub struct Connected(PgPool);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let state = error.as_database_error().and_then(|error| error.code()).map(String::from);
        Failure::Other { state, message: error.to_string() }
    }
}

impl Driver for Connected {
    async fn connect(url: &str) -> Result<Self, Failure> {
        // pgbouncer refuses a parameter of the session that it does not know, and `extra_float_digits` is one
        let options = url.parse::<PgConnectOptions>()?.extra_float_digits(None);
        Ok(Connected(PgPoolOptions::new().max_connections(1).connect_with(options).await?))
    }

    fn is_lost(&self) -> bool {
        false // the pool tries a connection before it gives it out
    }

    async fn run(&mut self, isolation: Option<Isolation>, steps: Steps, attempt: Arc<Attempt>) -> Result<(), Failure> {
        let Some(isolation) = isolation else {
            return all(&mut *self.0.acquire().await?, steps, attempt).await;
        };
        let begin = match isolation {
            Isolation::ReadCommitted => "begin isolation level read committed",
            Isolation::RepeatableRead => "begin isolation level repeatable read",
            Isolation::Serializable => "begin isolation level serializable",
        };
        let mut transaction = self.0.begin_with(begin).await?;
        all(&mut *transaction, steps, attempt).await?;
        transaction.commit().await?;
        Ok(())
    }
}

/// A connection, also one in a transaction. `persistent(false)` leaves a prepared statement without a name: a pooler in
/// transaction mode needs that, where a named one may be on another server connection than its use.
impl Session for PgConnection {
    async fn write(&mut self, tag: &str) -> Result<(), Failure> {
        sqlx::query("insert into application_rows (tag) values ($1)").bind(tag).persistent(false).execute(self).await?;
        Ok(())
    }

    async fn expect(&mut self, token: Token) -> Result<(), Failure> {
        let query = sqlx::query(EXPECT).bind(token.job_id).bind(token.run_lease).bind(token.claim_slot);
        let query = query.bind(token.receipt_id).bind(token.batch_id).bind(token.batch_index);
        query.persistent(false).execute(self).await?;
        Ok(())
    }

    async fn complete(&mut self, token: Token, progress: Option<Value>) -> Result<Completion, Failure> {
        let query = sqlx::query_as(COMPLETE).bind(token.job_id).bind(token.run_lease).bind(token.claim_slot);
        let query = query.bind(token.receipt_id).bind(token.batch_id).bind(token.batch_index).bind(progress);
        let (job_id, outcome): (i64, String) = query.persistent(false).fetch_one(self).await?;
        Ok(Completion { job_id: job_id.to_string(), outcome })
    }

    async fn execute(&mut self, sql: &'static str) -> Result<(), Failure> {
        sqlx::raw_sql(sql).execute(self).await?;
        Ok(())
    }

    async fn nested(&mut self, steps: Steps, attempt: Arc<Attempt>) -> Result<(), Failure> {
        let mut savepoint = self.begin().await?;
        all(&mut *savepoint, steps, attempt).await?;
        savepoint.commit().await?;
        Ok(())
    }
}
