//! tokio-postgres: a transaction is rolled back when it is dropped before `commit`, and so is the one nested in it.

use crate::protocol::{Attempt, Completion, Isolation, Steps, Token};
use crate::session::{all, Driver, Failure, Session};
use serde_json::Value;
use std::sync::Arc;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, GenericClient, IsolationLevel, NoTls};

const EXPECT: &str = "select awa.expect_completion(job_id => $1, run_lease => $2, claim_slot => $3, receipt_id => $4, \
     batch_id => $5, batch_index => $6)";
const COMPLETE: &str = "select job_id, outcome from awa.complete_job(job_id => $1, run_lease => $2, \
     claim_slot => $3, receipt_id => $4, batch_id => $5, batch_index => $6, progress => $7)";

pub struct Connected(Client);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let state = error.code().map(|state| state.code().to_owned());
        Failure::Other { state, message: format!("{error:?}") }
    }
}

impl Driver for Connected {
    async fn connect(url: &str) -> Result<Self, Failure> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection); // whoever has a statement in it is told of its end
        Ok(Connected(client))
    }

    fn is_lost(&self) -> bool {
        self.0.is_closed()
    }

    async fn run(&mut self, isolation: Option<Isolation>, steps: Steps, attempt: Arc<Attempt>) -> Result<(), Failure> {
        let Some(isolation) = isolation else {
            return all(&mut Statements(&mut self.0), steps, attempt).await;
        };
        let level = match isolation {
            Isolation::ReadCommitted => IsolationLevel::ReadCommitted,
            Isolation::RepeatableRead => IsolationLevel::RepeatableRead,
            Isolation::Serializable => IsolationLevel::Serializable,
        };
        let mut transaction = self.0.build_transaction().isolation_level(level).start().await?;
        all(&mut Statements(&mut transaction), steps, attempt).await?;
        transaction.commit().await?;
        Ok(())
    }
}

fn fields(token: &Token) -> Vec<(&(dyn ToSql + Sync), Type)> {
    vec![
        (&token.job_id, Type::INT8),
        (&token.run_lease, Type::INT8),
        (&token.claim_slot, Type::INT4),
        (&token.receipt_id, Type::INT8),
        (&token.batch_id, Type::INT8),
        (&token.batch_index, Type::INT4),
    ]
}

/// In a transaction, or outside any. The `_typed` methods send a statement without a name, in one round trip: a pooler in
/// transaction mode needs that, where a named one may be on another server connection than its use.
struct Statements<'a, C>(&'a mut C);

impl<C: GenericClient + Send> Session for Statements<'_, C> {
    async fn write(&mut self, tag: &str) -> Result<(), Failure> {
        self.0.execute_typed("insert into application_rows (tag) values ($1)", &[(&tag, Type::TEXT)]).await?;
        Ok(())
    }

    async fn expect(&mut self, token: Token) -> Result<(), Failure> {
        self.0.query_typed_one(EXPECT, &fields(&token)).await?;
        Ok(())
    }

    async fn complete(&mut self, token: Token, progress: Option<Value>) -> Result<Completion, Failure> {
        let mut fields = fields(&token);
        fields.push((&progress, Type::JSONB));
        let row = self.0.query_typed_one(COMPLETE, &fields).await?;
        Ok(Completion { job_id: row.try_get::<_, i64>(0)?.to_string(), outcome: row.try_get(1)? })
    }

    async fn execute(&mut self, sql: &'static str) -> Result<(), Failure> {
        Ok(self.0.batch_execute(sql).await?)
    }

    async fn nested(&mut self, steps: Steps, attempt: Arc<Attempt>) -> Result<(), Failure> {
        let mut savepoint = self.0.transaction().await?;
        all(&mut Statements(&mut savepoint), steps, attempt).await?;
        savepoint.commit().await?;
        Ok(())
    }
}
