//! What the suite does past the adapter.

pub(crate) mod rules;

use std::time::Duration;

use anyqueue::adapter::{
    Action, Decoded, Envelope, PullQueueStorage, PullRequest, PushQueueStorage, QueueStorage, Settlement,
};
use anyqueue::{Bytes, Error, ErrorKind, MessageData, MessageId, PartitionId, Result};
use anyqueue_conformance::corrupted;
use anyqueue_rabbitmq::RabbitMqQueue;
use lapin::options::{BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Connection, ConnectionProperties};

const SOON: Duration = Duration::from_secs(10);

/// Publishes these bytes to the partition's queue, which is there then: a message came and went.
pub(crate) async fn plant(
    url: &str,
    address: &str,
    prefix: &str,
    partition: &PartitionId,
    stored: &[u8],
) -> Result<()> {
    let queue = RabbitMqQueue::open(address).await?;
    for answer in queue.push(partition, &[MessageData::new("first")]).await {
        answer?;
    }
    for delivery in queue.pull(partition, PullRequest::new(1, SOON, SOON)).await? {
        let settled = queue.settle(&[Settlement::new(delivery.lease, Action::Remove)]).await;
        settled.into_iter().collect::<Result<Vec<_>>>()?;
    }
    queue.close().await?;
    let name = format!("{prefix}:{}:0", partition.name());
    publish(url, &name, stored).await.map_err(unplanted)
}

/// Damages the message, by taking all of the partition's queue and publishing it again.
pub(crate) async fn corrupt(url: &str, prefix: &str, partition: &PartitionId, id: MessageId) -> Result<()> {
    let dead = if partition.is_dead_letters() { ":dead" } else { "" };
    let queue = format!("{prefix}:{}{dead}:0", partition.name());
    let stored = take_all(url, &queue).await.map_err(unplanted)?;
    for body in stored {
        let is_it = |envelope: &Envelope| envelope.message.id() == id;
        let body = match Envelope::decode(&Bytes::from(body.clone())) {
            Ok(Decoded::Envelope(envelope)) if is_it(&envelope) => corrupted(&body)?,
            _ => body,
        };
        publish(url, &queue, &body).await.map_err(unplanted)?;
    }
    Ok(())
}

fn unplanted(error: lapin::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "the message could not be planted").with_source(error)
}

/// All that a queue has ready, in order.
async fn take_all(url: &str, queue: &str) -> lapin::Result<Vec<Vec<u8>>> {
    let conn = Connection::connect(url, ConnectionProperties::default()).await?;
    let channel = conn.create_channel().await?;
    let mut bodies = Vec::new();
    while let Some(got) = channel.basic_get(queue.into(), BasicGetOptions { no_ack: true }).await? {
        bodies.push(got.delivery.data);
    }
    conn.close(200, "done".into()).await?;
    Ok(bodies)
}

async fn publish(url: &str, queue: &str, body: &[u8]) -> lapin::Result<()> {
    let conn = Connection::connect(url, ConnectionProperties::default()).await?;
    let channel = conn.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
    channel.basic_publish("".into(), queue.into(), options, body, properties).await?.await?;
    conn.close(200, "done".into()).await
}
