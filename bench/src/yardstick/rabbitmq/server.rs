//! The private server that both sides use, started when it is first needed and removed with this program.

use std::sync::atomic::{AtomicU32, Ordering};

use anyqueue_testkit::Server;
use lapin::options::QueueDeleteOptions;
use lapin::{Connection, ConnectionProperties};
use tokio::sync::OnceCell;

use crate::client::Result;

static SERVER: OnceCell<Server> = OnceCell::const_new();
static PLACES: AtomicU32 = AtomicU32::new(0);
const PREFIX: &str = "?prefix=";

/// Returns the URL of an unused prefix.
pub(super) async fn new_place(options: &str) -> Result<String> {
    let server = SERVER.get_or_try_init(|| Server::start(anyqueue_testkit::RabbitMq::new())).await?;
    let place = PLACES.fetch_add(1, Ordering::Relaxed);
    // Each round creates its queues anew; waiting once for each until it is old is not what is measured.
    Ok(format!("{}{PREFIX}bench{place}{options}&queue_age=0s", server.url()))
}

/// Returns the server's version, once it has been started.
pub(super) fn version() -> Option<String> {
    SERVER.get().map(|server| server.version().to_owned())
}

/// Returns the server's address and the prefix.
pub(super) fn parts(url: &str) -> Result<(&str, &str)> {
    let (plain, options) = url.split_once(PREFIX).ok_or("no prefix")?;
    Ok((plain, options.split('&').next().unwrap_or_default()))
}

/// Returns the queue of the hand-written client.
pub(super) fn by_hand(prefix: &str) -> String {
    format!("{prefix}:by-hand")
}

/// Removes the queues of both sides, so that no round is affected by what another one left.
pub(super) async fn clear(url: &str) -> Result<()> {
    let (plain, prefix) = parts(url)?;
    let conn = Connection::connect(plain, ConnectionProperties::default()).await?;
    let channel = conn.create_channel().await?;
    for queue in [by_hand(prefix), format!("{prefix}:bench:0"), format!("{prefix}:sink")] {
        channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await?;
    }
    Ok(conn.close(200, "done".into()).await?)
}
