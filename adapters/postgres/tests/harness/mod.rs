//! What the suite does past the adapter.

use anyqueue::{Error, ErrorKind, MessageId, Result};
use anyqueue_conformance::corrupted;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;

fn refused(error: sqlx::Error) -> Error {
    Error::new(ErrorKind::Internal, "the row could not be changed").with_source(error)
}

/// Damages the message's row.
pub(crate) async fn corrupt(url: &str, schema: &str, id: MessageId) -> Result<()> {
    let body = body(url, schema, id).await.map_err(refused)?;
    replace(url, schema, id, &corrupted(&body)?).await.map_err(refused)
}

async fn body(url: &str, schema: &str, id: MessageId) -> sqlx::Result<Vec<u8>> {
    let select = AssertSqlSafe(format!("SELECT body FROM \"{schema}\".message WHERE id = $1"));
    let id = Uuid::from_bytes(*id.as_bytes());
    sqlx::query_scalar(select).bind(id).fetch_one(&mut PgConnection::connect(url).await?).await
}

async fn replace(url: &str, schema: &str, id: MessageId, body: &[u8]) -> sqlx::Result<()> {
    let update = AssertSqlSafe(format!("UPDATE \"{schema}\".message SET body = $1 WHERE id = $2"));
    let update = sqlx::query(update).bind(body).bind(Uuid::from_bytes(*id.as_bytes()));
    update.execute(&mut PgConnection::connect(url).await?).await.map(drop)
}

/// Frees what the namespace took.
pub(crate) async fn drop_schema(url: &str, schema: &str) {
    let drop = AssertSqlSafe(format!("DROP SCHEMA IF EXISTS \"{schema}\" CASCADE"));
    if let Ok(mut conn) = PgConnection::connect(url).await {
        // A private server goes with the run in any case.
        let _ = sqlx::raw_sql(drop).execute(&mut conn).await;
    }
}
