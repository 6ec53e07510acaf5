//! The private server that both sides use, started when it is first needed and removed with this program.

use std::sync::atomic::{AtomicU32, Ordering};

use anyqueue_testkit::Server;
use tokio::sync::OnceCell;

use super::table::Table;
use crate::client::Result;

static SERVER: OnceCell<Server> = OnceCell::const_new();
static SCHEMAS: AtomicU32 = AtomicU32::new(0);

/// The server has memory and room for its log, like any server in use; everything else, including durability,
/// has its default.
async fn server() -> Result<&'static Server> {
    let program = anyqueue_testkit::Postgres::new()
        .setting("shared_buffers", "1GB")
        .setting("max_wal_size", "8GB")
        .setting("checkpoint_timeout", "30min");
    Ok(SERVER.get_or_try_init(|| Server::start(program)).await?)
}

/// Returns the URL of an unused schema. What was written before is flushed, so that no round pays for
/// another.
pub(super) async fn new_schema() -> Result<String> {
    let server = server().await?;
    let schema = format!("bench_{}", SCHEMAS.fetch_add(1, Ordering::Relaxed));
    let url = format!("{}?schema={schema}", server.url());
    Table::connect(&url).await?.checkpoint().await?;
    Ok(url)
}
