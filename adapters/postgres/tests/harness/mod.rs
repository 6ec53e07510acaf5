//! What the suite does past the adapter: a database for each case, and damage to a row.
//!
//! A schema for each case in one database would keep the server busier than the cases do: each has some 250 relations, and every connection
//! hears of each that comes and goes. A database is copied from a model, and its connections hear of their own.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use anyqueue::adapter::QueueStorage as _;
use anyqueue::{Error, ErrorKind, MessageId, Result};
use anyqueue_conformance::corrupted;
use anyqueue_postgres::PostgresQueue;
use sqlx::error::DatabaseError;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use url::Url;
use uuid::Uuid;

/// A database that has the schema. Servers that were not started for the suite have none.
const MODEL: &str = "anyqueue_model";
/// What a database is copied from else: nobody can be connected to it, which would be in the way.
const EMPTY: &str = "template0";
/// Where databases are made.
const MAINTENANCE: &str = "template1";
/// Cases of this group begin without a schema.
const WITHOUT_SCHEMA: &str = "life";
/// Few connections: the suite opens many clients at once.
const OPTIONS: &str = "max_connections=4";

const DUPLICATE_DATABASE: &str = "42P04";
const UNIQUE_VIOLATION: &str = "23505";

/// The databases that this process knows to be there.
static MADE: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn failed(error: sqlx::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "the suite's own connection").with_source(error)
}

/// The URL of a database on the server at this one.
fn database(url: &str, name: &str) -> String {
    match Url::parse(url) {
        Ok(mut url) => {
            url.set_path(name);
            url.into()
        }
        Err(_) => url.to_owned(), // the adapter says what is wrong with it
    }
}

/// A client's URL of the namespace.
pub(crate) fn address(url: &str, namespace: &str) -> String {
    let url = database(url, namespace);
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}{OPTIONS}")
}

/// Makes the database that the others are copied from.
pub(crate) async fn make_model(url: &str) -> Result<()> {
    create(&mut PgConnection::connect(url).await.map_err(failed)?, MODEL, EMPTY).await?;
    let queue = PostgresQueue::builder(&address(url, MODEL))?.open().await?;
    queue.init().await?;
    queue.close().await
}

/// Makes the database at this address, unless it is there.
pub(crate) async fn make(address: &str) -> Result<()> {
    if MADE.lock().unwrap_or_else(PoisonError::into_inner).contains(address) {
        return Ok(());
    }
    let (url, _) = address.rsplit_once(OPTIONS).unwrap_or((address, ""));
    let name = Url::parse(url).map_err(|error| Error::invalid(error.to_string()))?;
    let name = name.path().trim_start_matches('/');
    let mut conn = PgConnection::connect(&database(url.trim_end_matches(['?', '&']), MAINTENANCE))
        .await
        .map_err(failed)?;
    let models = sqlx::query_scalar("SELECT count(*) FROM pg_database WHERE datname = $1").bind(MODEL);
    let has_model = models.fetch_one(&mut conn).await.map(|count: i64| count > 0).map_err(failed)?;
    let from = if has_model && !name.starts_with(WITHOUT_SCHEMA) { MODEL } else { EMPTY };
    create(&mut conn, name, from).await?;
    MADE.lock().unwrap_or_else(PoisonError::into_inner).insert(address.to_owned());
    Ok(())
}

async fn create(conn: &mut PgConnection, name: &str, from: &str) -> Result<()> {
    let create = AssertSqlSafe(format!("CREATE DATABASE \"{name}\" TEMPLATE \"{from}\""));
    let created = sqlx::raw_sql(create).execute(conn).await.map(drop);
    created.or_else(|error| {
        let code = error.as_database_error().and_then(DatabaseError::code);
        let is_there = [DUPLICATE_DATABASE, UNIQUE_VIOLATION].contains(&code.as_deref().unwrap_or_default());
        if is_there { Ok(()) } else { Err(failed(error)) }
    })
}

/// Frees what the namespace took. A private server goes with the run in any case.
pub(crate) async fn remove(url: &str, namespace: &str) {
    let drop = AssertSqlSafe(format!("DROP DATABASE IF EXISTS \"{namespace}\" WITH (FORCE)"));
    if let Ok(mut conn) = PgConnection::connect(url).await {
        let _ = sqlx::raw_sql(drop).execute(&mut conn).await;
    }
}

/// Damages the message's row.
pub(crate) async fn corrupt(url: &str, namespace: &str, id: MessageId) -> Result<()> {
    let mut conn = PgConnection::connect(&database(url, namespace)).await.map_err(failed)?;
    let id = Uuid::from_bytes(*id.as_bytes());
    let select = sqlx::query_scalar("SELECT body FROM anyqueue.message WHERE id = $1").bind(id);
    let body: Vec<u8> = select.fetch_one(&mut conn).await.map_err(failed)?;
    let update = sqlx::query("UPDATE anyqueue.message SET body = $1 WHERE id = $2");
    update.bind(corrupted(&body)?).bind(id).execute(&mut conn).await.map(drop).map_err(failed)
}
