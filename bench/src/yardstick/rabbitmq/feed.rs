//! A consumer, and how much the server may send it.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::{Bytes, MessageId};
use futures_util::{FutureExt, StreamExt};
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Consumer};

use super::acks::Acks;
use super::delivery::{ID_BYTES, RawDelivery};
use crate::client::Result;

/// Settlements are acknowledged together: a quarter (one in this many) of what the server may send.
const SHARE: usize = 4;

pub(super) struct Feed {
    channel: Channel,
    queue: String,
    /// How many messages the server may send beyond what is requested.
    ahead: usize,
    active: Option<ActiveConsumer>,
    acks: Arc<Acks>,
}

struct ActiveConsumer {
    consumer: Consumer,
    prefetch: usize,
    come: usize,
    /// How far the server had been told when this consumer began.
    told_before: u64,
}

impl Feed {
    pub(super) fn new(channel: Channel, queue: String, ahead: u16) -> Self {
        let acks = Arc::new(Acks::new(channel.clone()));
        Self { channel, queue, ahead: ahead.into(), active: None, acks }
    }

    pub(super) fn acks(&self) -> Arc<Acks> {
        Arc::clone(&self.acks)
    }

    /// Starts a consumer to which the server may send `prefetch` messages, or as many as it may send ahead if
    /// that is more.
    pub(super) async fn stand(&mut self, prefetch: usize) -> Result<()> {
        let prefetch = prefetch.max(self.ahead);
        if let Some(active) = self.active.take() {
            let cancel = BasicCancelOptions::default();
            self.channel.basic_cancel(active.consumer.tag(), cancel).await?;
        }
        self.channel.basic_qos(u16::try_from(prefetch)?, BasicQosOptions::default()).await?;
        let (queue, options) = (self.queue.as_str().into(), BasicConsumeOptions::default());
        let consumer = self.channel.basic_consume(queue, "".into(), options, FieldTable::default()).await?;
        let told_before = self.acks.tell_after(prefetch.div_ceil(SHARE));
        self.active = Some(ActiveConsumer { consumer, prefetch, come: 0, told_before });
        Ok(())
    }

    /// Returns how many messages the server may still send.
    fn open(&self) -> usize {
        self.active.as_ref().map_or(0, |active| {
            let told = usize::try_from(self.acks.told() - active.told_before).unwrap_or(usize::MAX);
            active.prefetch.saturating_sub(active.come.saturating_sub(told))
        })
    }

    /// Returns the next message.
    pub(super) async fn next(&mut self) -> Result<RawDelivery> {
        let active = self.active.as_mut().ok_or("there is no consumer")?;
        let come = active.consumer.next().await.ok_or("the consumer has ended")??;
        active.come += 1;
        self.acks.came(come.delivery_tag);
        let body = Bytes::from(come.data);
        let id = body.first_chunk::<ID_BYTES>().ok_or("a message without an id")?;
        let (id, payload) = (MessageId::from_bytes(*id), body.slice(ID_BYTES..));
        Ok(RawDelivery { id, payload, number: come.delivery_tag, acks: self.acks() })
    }

    /// Returns up to `max` messages; waits up to `wait` for the first one. A consumer is not replaced before
    /// everything that it may get has arrived: nobody would hold what is on its way to it.
    pub(super) async fn take(&mut self, max: usize, wait: Duration) -> Result<Vec<RawDelivery>> {
        if self.open() == 0 {
            self.stand(max).await?;
        }
        let mut taken = Vec::new();
        match tokio::time::timeout(wait, self.next()).await {
            Ok(first) => taken.push(first?),
            Err(_) => return Ok(taken),
        }
        while taken.len() < max
            && let Some(next) = self.next().now_or_never()
        {
            taken.push(next?);
        }
        Ok(taken)
    }
}
