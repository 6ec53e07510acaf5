//! Millions of ended tasks: how soon the first page of a filter is there, how much memory a stream of them
//! takes, and how long tables are locked when their space is freed. For PostgreSQL, SQLite and Redis, which
//! keep ends themselves; there is no hand-written client to compare with.

mod line;
mod pages;
mod purge;
mod store;
mod stream;

use self::line::Line;
use self::store::Store;
use crate::client::Result;
use crate::compare::Settings;
use crate::environment::Environment;
use crate::service::Service;

/// The names on the command line; the part after the dash is the store.
pub(crate) const NAMES: [&str; 3] = ["ended-sqlite", "ended-postgres", "ended-redis"];
/// The number of ended tasks, unless the command line says another.
const ENDED: usize = 10_000_000;
/// The number of tasks in a stream.
const STREAMED: usize = 1_000_000;
/// The number of ends that are freed at once.
const PURGED: usize = 7_000_000;

/// Fills a store, measures it and prints a line for each figure.
pub(crate) async fn print(backend: &'static str, settings: &Settings, json: bool) -> Result<()> {
    let ended = settings.messages.unwrap_or(ENDED);
    let folder = settings.scratch.directory()?;
    let store = Store::new(backend, folder.path()).await?;
    let queue = store.open().await?;
    let server = queue.check().await?.server_version;
    let line = Line { backend, ended, environment: Some(Environment::here(server)), ..Line::default() };
    let queue = store.fill(queue, ended, &line, json).await?;
    pages::by_library(&queue, settings.rounds, &line, json).await?;
    let service = Service::start(store.url())?;
    pages::by_http(service.address(), settings.rounds, &line, json).await?;
    let streamed = STREAMED.min(ended);
    stream::by_library(&queue, streamed, &line, json).await?;
    stream::by_http(service.address(), streamed, &line, json).await?;
    service.end()?;
    if let Store::Postgres(server) = &store {
        purge::print(server, &queue, PURGED.min(ended), &line, json).await?;
    }
    Ok(queue.close().await?)
}
