//! Our side: everything through the public [`Queue`].

use std::time::Duration;

use anyqueue::{
    Bytes, Delivery, HandlerStream, MessageData, MessageId, PartitionOptions, PushOutcome, Queue,
    QueueMessageStatus, SettleOutcome, Successors,
};
use futures_util::StreamExt;

use crate::client::{Client, LEASE, Result, Source};

pub(crate) const PARTITION: &str = "bench";
/// Enough for the scenarios that hold a whole round of messages at once.
const MAX_HELD: usize = 1 << 20;

/// A queue on whatever backend the URL names.
#[derive(Clone)]
pub(crate) struct Ours(Queue);

impl Ours {
    /// Returns the version that the server reports.
    pub(crate) async fn server_version(&self) -> Result<Option<String>> {
        Ok(self.0.check().await?.server_version)
    }
}

impl Client for Ours {
    const SIDE: &'static str = "anyqueue";
    type RawDelivery = Delivery;
    type Source = HandlerStream;

    async fn open(url: &str) -> Result<Self> {
        let storage = anyqueue_backends::open(url).await?;
        let defaults = PartitionOptions::default().with_lease(LEASE);
        let queue = Queue::builder(storage).defaults(defaults).max_held(MAX_HELD).build()?;
        queue.init().await?;
        Ok(Self(queue))
    }

    async fn push(&self, payload: Bytes) -> Result<MessageId> {
        stored(self.0.push(PARTITION, MessageData::from_bytes(payload)).await?)
    }

    async fn push_batch(&self, payloads: Vec<Bytes>) -> Result<Vec<MessageId>> {
        let messages = payloads.into_iter().map(MessageData::from_bytes).collect();
        let outcomes = self.0.push_many(PARTITION, messages).await?;
        outcomes.into_iter().map(|outcome| stored(outcome?)).collect()
    }

    async fn pull(&self, max: usize, wait: Duration) -> Result<Vec<Delivery>> {
        Ok(self.0.pull(PARTITION).max(max).wait(wait).await?)
    }

    async fn settle(&self, mut delivery: Delivery) -> Result<()> {
        settled(delivery.settle(QueueMessageStatus::Processed).await?)
    }

    async fn settle_batch(&self, mut deliveries: Vec<Delivery>) -> Result<()> {
        let settlements = deliveries.iter_mut().map(|delivery| (delivery, QueueMessageStatus::Processed));
        self.0.settle_many(settlements).await.into_iter().try_for_each(|outcome| settled(outcome?))
    }

    async fn settle_then(
        &self,
        mut deliveries: Vec<Delivery>,
        payloads: Vec<Bytes>,
    ) -> Result<Vec<MessageId>> {
        let mut ids = Vec::with_capacity(payloads.len());
        let mut settlements = Vec::with_capacity(payloads.len());
        for (delivery, payload) in deliveries.iter_mut().zip(payloads) {
            let message = MessageData::from_bytes(payload);
            ids.push(message.id());
            let then = Successors::new().then(PARTITION, message)?;
            settlements.push((delivery, QueueMessageStatus::Processed, then));
        }
        self.0.settle_many_with(settlements).await.into_iter().try_for_each(|outcome| settled(outcome?))?;
        Ok(ids)
    }

    async fn source(&self, window: usize) -> Result<HandlerStream> {
        Ok(self.0.stream(PARTITION).window(window).build()?)
    }

    async fn remaining(&self) -> Result<u64> {
        left_in(&self.0).await
    }

    async fn close(&self) -> Result<()> {
        Ok(self.0.close().await?)
    }

    fn id(delivery: &Delivery) -> MessageId {
        delivery.id()
    }

    fn payload(delivery: &Delivery) -> &[u8] {
        delivery.payload()
    }
}

/// Returns how many messages the queue holds, in whatever state.
pub(crate) async fn left_in(queue: &Queue) -> Result<u64> {
    let counts = queue.counts(PARTITION).await?;
    let ready = counts.ready.ok_or("the backend does not count its messages")?;
    // Every backend counts the waiting ones, but not every one the others.
    Ok(ready + counts.delayed.unwrap_or_default() + counts.leased.unwrap_or_default())
}

impl Source<Delivery> for HandlerStream {
    async fn next(&mut self) -> Result<Delivery> {
        Ok(StreamExt::next(self).await.ok_or("the stream ended early")??)
    }
}

fn stored(outcome: PushOutcome) -> Result<MessageId> {
    match outcome {
        PushOutcome::Stored(id) => Ok(id),
        PushOutcome::Duplicate(id) => {
            Err(format!("a new message was taken for a duplicate of {id:?}").into())
        }
        PushOutcome::Replaced(id) => Err(format!("a new message replaced {id:?}").into()),
    }
}

fn settled(outcome: SettleOutcome) -> Result<()> {
    match outcome {
        SettleOutcome::Settled => Ok(()),
        SettleOutcome::Lost => Err("a lease was lost".into()),
    }
}
