//! What the suite does past the adapter.

use std::time::Duration;

use anyqueue::{Error, ErrorKind, MessageId, PartitionId, Result};
use anyqueue_conformance::corrupted;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError, RedisResult};

fn refused(error: RedisError) -> Error {
    Error::new(ErrorKind::Internal, "the record could not be changed").with_source(error)
}

/// Damages the message's record.
pub(crate) async fn corrupt(url: &str, prefix: &str, partition: &PartitionId, id: MessageId) -> Result<()> {
    let mut conn = connect(url).await.map_err(refused)?;
    let hashes = format!("{prefix}:{{{}}}:messages*", partition.name());
    let (hash, record) = record(&mut conn, &hashes, id).await.map_err(refused)?;
    let mut replace = redis::cmd("HSET");
    replace.arg(hash).arg(id.as_bytes()).arg(corrupted(&record)?);
    replace.query_async(&mut conn).await.map_err(refused)
}

/// Patient: the client's own half a second is too short on a busy machine.
async fn connect(url: &str) -> RedisResult<MultiplexedConnection> {
    let patience = Some(Duration::from_secs(30));
    let options =
        AsyncConnectionConfig::new().set_connection_timeout(patience).set_response_timeout(patience);
    Client::open(url)?.get_multiplexed_async_connection_with_config(&options).await
}

/// The hash of these in which the message is, and its record; an empty one if it is in none.
async fn record(
    conn: &mut MultiplexedConnection,
    hashes: &str,
    id: MessageId,
) -> RedisResult<(String, Vec<u8>)> {
    let names: Vec<String> = redis::cmd("KEYS").arg(hashes).query_async(conn).await?;
    for hash in names {
        let mut read = redis::cmd("HGET");
        let record: Option<Vec<u8>> = read.arg(&hash).arg(id.as_bytes()).query_async(conn).await?;
        if let Some(record) = record {
            return Ok((hash, record));
        }
    }
    Ok((String::new(), Vec::new()))
}
