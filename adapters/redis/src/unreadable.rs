//! Claimed messages that cannot be read. They are delivered as they are stored, so that the queue can set
//! them aside.

use std::time::Instant;

use anyqueue::adapter::{Lease, RawDelivery};
use anyqueue::{Bytes, Error, MessageId, PartitionId, Result};
use uuid::Uuid;

use crate::RedisQueue;
use crate::record;
use crate::reply::optional_bytes;
use crate::token::Tokens;

/// The size of what a claim records for each message: its id and its level.
const ENTRY_BYTES: usize = 17;

/// The unreadable messages of one claim.
#[derive(Default)]
pub(crate) struct Unreadable {
    pub(crate) messages: Vec<Undecoded>,
    /// The server's time.
    pub(crate) now_us: u64,
}

/// An unreadable message.
pub(crate) struct Undecoded {
    /// Its position in the claim.
    pub(crate) number: usize,
    pub(crate) record: Bytes,
    pub(crate) headers: Option<Bytes>,
    pub(crate) delivery_count: u32,
    pub(crate) why: Error,
}

impl RedisQueue {
    /// Adds the unreadable messages to the deliveries of their claim. The reply had no ids besides the
    /// records, but the server has them in the claim, in the same order.
    pub(crate) async fn add_unreadable(
        &self,
        deliveries: &mut Vec<RawDelivery>,
        unreadable: Unreadable,
        partition: &PartitionId,
        secret: Uuid,
        lease_until: Instant,
    ) -> Result<()> {
        let mut taken = redis::cmd("HGET");
        taken.arg(self.inner.names.taken(partition)).arg(secret.as_bytes());
        let entries = match self.inner.link.command(&taken).await.and_then(optional_bytes) {
            Ok(entries) => entries.unwrap_or_default(),
            // The messages return when their leases end.
            Err(error) if deliveries.is_empty() => return Err(error),
            Err(_) => return Ok(()),
        };
        let mut tokens = Tokens::new(secret);
        for Undecoded { number, record, headers, delivery_count, why } in unreadable.messages {
            let entry = entries.chunks_exact(ENTRY_BYTES).nth(number).and_then(<[u8]>::split_first_chunk);
            let Some((id, [level])) = entry else { continue };
            let id = MessageId::from_bytes(*id);
            let stored = record::undecoded(id, &record, headers, *level, unreadable.now_us);
            let lease = Lease { partition: partition.clone(), id, token: tokens.of(stored.flag) };
            let age = stored.age(unreadable.now_us);
            let delivery =
                RawDelivery::new(lease, stored.message).with_lease_until(lease_until).with_age(age);
            let delivery = delivery.with_delivery_count(delivery_count).with_unreadable(Some(why));
            deliveries.insert(number.min(deliveries.len()), delivery);
        }
        Ok(())
    }
}
