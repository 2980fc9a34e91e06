//! SeaORM: `transaction` commits when its closure answers Ok and rolls back when it answers Err, and so does one nested in it.

use crate::protocol::{Attempt, Completion, Isolation, Steps, Token};
use crate::session::{all, Driver, Failure, Session};
use sea_orm::{
    raw_sql, ActiveModelTrait, ConnectOptions, ConnectionTrait, Database, DatabaseConnection, DatabaseTransaction,
    DbErr, IsolationLevel, JsonValue, RuntimeErr, Set, TransactionError, TransactionTrait,
};
use std::sync::Arc;

pub struct Connected(DatabaseConnection);

mod application_row {
    use sea_orm::entity::prelude::*;

    #[derive(Clone, Debug, DeriveEntityModel)]
    #[sea_orm(table_name = "application_rows")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub tag: String,
    }

    #[derive(Clone, Copy, Debug, DeriveRelation, EnumIter)]
    pub enum Relation {}

    impl ActiveModelBehavior for ActiveModel {}
}

impl From<DbErr> for Failure {
    fn from(error: DbErr) -> Self {
        let state = match &error {
            DbErr::Conn(RuntimeErr::SqlxError(cause))
            | DbErr::Exec(RuntimeErr::SqlxError(cause))
            | DbErr::Query(RuntimeErr::SqlxError(cause)) => cause.as_database_error().and_then(|cause| cause.code()),
            _ => None,
        };
        Failure::Other { state: state.map(String::from), message: error.to_string() }
    }
}

impl From<TransactionError<Failure>> for Failure {
    fn from(error: TransactionError<Failure>) -> Self {
        match error {
            TransactionError::Connection(error) => error.into(), // of BEGIN, COMMIT or ROLLBACK
            TransactionError::Transaction(failure) => failure,
        }
    }
}

impl Driver for Connected {
    async fn connect(url: &str) -> Result<Self, Failure> {
        let mut options = ConnectOptions::new(url);
        options.max_connections(1).sqlx_logging(false);
        // For a pooler in transaction mode, which refuses `extra_float_digits` and keeps no statement for its client; without one
        // leave this out, and `deallocate all` below.
        options.map_sqlx_postgres_opts(|options| options.extra_float_digits(None).statement_cache_capacity(0));
        Ok(Connected(Database::connect(options).await?))
    }

    fn is_lost(&self) -> bool {
        false // the pool tries a connection before it gives it out
    }

    async fn run(&mut self, isolation: Option<Isolation>, steps: Steps, attempt: Arc<Attempt>) -> Result<(), Failure> {
        let Some(isolation) = isolation else {
            return all(&mut Statements(&self.0), steps, attempt).await;
        };
        let level = match isolation {
            Isolation::ReadCommitted => IsolationLevel::ReadCommitted,
            Isolation::RepeatableRead => IsolationLevel::RepeatableRead,
            Isolation::Serializable => IsolationLevel::Serializable,
        };
        self.0
            .transaction_with_config::<_, (), Failure>(
                |transaction| {
                    Box::pin(async move {
                        // SeaORM gives every statement a name, and without a cache never takes it back: another client's
                        // name, left on this server connection, would be in the way
                        transaction.execute_unprepared("deallocate all").await?;
                        all(&mut Statements(transaction), steps, attempt).await
                    })
                },
                Some(level),
                None,
            )
            .await?;
        Ok(())
    }
}

/// In a transaction, or outside any.
struct Statements<'a, C>(&'a C);

impl<C: ConnectionTrait + TransactionTrait<Transaction = DatabaseTransaction>> Session for Statements<'_, C> {
    async fn write(&mut self, tag: &str) -> Result<(), Failure> {
        application_row::ActiveModel { tag: Set(tag.to_owned()) }.insert(self.0).await?;
        Ok(())
    }

    async fn expect(&mut self, token: Token) -> Result<(), Failure> {
        let expect = raw_sql!(
            Postgres,
            r#"select awa.expect_completion(job_id => {token.job_id}, run_lease => {token.run_lease},
                 claim_slot => {token.claim_slot}, receipt_id => {token.receipt_id},
                 batch_id => {token.batch_id}, batch_index => {token.batch_index})"#
        );
        self.0.execute_raw(expect).await?;
        Ok(())
    }

    async fn complete(&mut self, token: Token, progress: Option<JsonValue>) -> Result<Completion, Failure> {
        let complete = raw_sql!(
            Postgres,
            r#"select job_id, outcome from awa.complete_job(job_id => {token.job_id}, run_lease => {token.run_lease},
                 claim_slot => {token.claim_slot}, receipt_id => {token.receipt_id},
                 batch_id => {token.batch_id}, batch_index => {token.batch_index}, progress => {progress})"#
        );
        let row = self.0.query_one_raw(complete).await?.ok_or(DbErr::RecordNotFound("complete_job".to_owned()))?;
        Ok(Completion { job_id: row.try_get::<i64>("", "job_id")?.to_string(), outcome: row.try_get("", "outcome")? })
    }

    async fn execute(&mut self, sql: &'static str) -> Result<(), Failure> {
        self.0.execute_unprepared(sql).await?;
        Ok(())
    }

    async fn nested(&mut self, steps: Steps, attempt: Arc<Attempt>) -> Result<(), Failure> {
        self.0
            .transaction::<_, (), Failure>(|savepoint| {
                Box::pin(async move { all(&mut Statements(savepoint), steps, attempt).await })
            })
            .await?;
        Ok(())
    }
}
