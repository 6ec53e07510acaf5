//! Making messages, and checking that what came back is what went in.

use std::collections::HashSet;
use std::future::Future;

use anyqueue::{Bytes, MessageId};
use tokio::task::JoinSet;

use super::size::Size;
use crate::client::{Client, Result};

/// Messages in one call when a scenario fills or empties a queue outside its measurement.
pub(super) const FILL: usize = 1000;

/// Returns a payload that begins with its number and continues like noise, the same for the same number, so
/// that a store that compresses does not have less to carry than another.
pub(super) fn payload(number: u64, bytes: usize) -> Bytes {
    let mut payload = vec![0; bytes.max(size_of::<u64>())];
    fastrand::Rng::with_seed(number).fill(&mut payload);
    if let Some(start) = payload.first_chunk_mut() {
        *start = number.to_be_bytes();
    }
    payload.into()
}

/// Returns payloads numbered from `first`.
pub(super) fn payloads(first: usize, count: usize, bytes: usize) -> Vec<Bytes> {
    (first..first + count).map(|number| payload(number as u64, bytes)).collect()
}

/// Returns the number that a payload begins with.
pub(super) fn number(payload: &[u8]) -> Result<u64> {
    Ok(u64::from_be_bytes(*payload.first_chunk().ok_or("a payload came back too short")?))
}

/// A message as it came back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    id: MessageId,
    number: u64,
    bytes: usize,
}

impl Seen {
    pub(super) fn of<C: Client>(delivery: &C::RawDelivery) -> Result<Self> {
        let payload = C::payload(delivery);
        Ok(Self { id: C::id(delivery), number: number(payload)?, bytes: payload.len() })
    }
}

/// Checks that each of `pushed` (in the order of its numbers) came back exactly once, with its own payload.
pub(super) fn each_once(pushed: &[MessageId], seen: &[Seen], payload_bytes: usize) -> Result<()> {
    let mut came_back = vec![false; pushed.len()];
    for message in seen {
        let index = usize::try_from(message.number)?;
        if pushed.get(index) != Some(&message.id) || message.bytes != payload_bytes {
            return Err(format!("{} came back with a payload that is not its own", message.id).into());
        }
        match came_back.get_mut(index) {
            Some(before) if !*before => *before = true,
            _ => return Err(format!("{} came back twice", message.id).into()),
        }
    }
    expect("messages that came back", seen.len(), pushed.len())
}

/// Checks that no id occurs twice.
pub(super) fn distinct(ids: &[MessageId]) -> Result<()> {
    expect("distinct ids", ids.iter().collect::<HashSet<_>>().len(), ids.len())
}

/// Checks how many messages the queue holds.
pub(super) async fn expect_remaining<C: Client>(client: &C, expected: usize) -> Result<()> {
    expect("messages in the queue", usize::try_from(client.remaining().await?)?, expected)
}

pub(super) fn expect(what: &str, actual: usize, expected: usize) -> Result<()> {
    if actual == expected { Ok(()) } else { Err(format!("{what}: {actual} instead of {expected}").into()) }
}

/// Fills the queue, outside any measurement, and returns the ids in the order of their numbers.
pub(super) async fn fill<C: Client>(client: &C, size: Size) -> Result<Vec<MessageId>> {
    let mut ids = Vec::with_capacity(size.messages);
    while ids.len() < size.messages {
        let count = FILL.min(size.messages - ids.len());
        ids.extend(client.push_batch(payloads(ids.len(), count, size.payload_bytes)).await?);
    }
    Ok(ids)
}

/// Pulls exactly `count` messages that are already there, at most `batch` in a call.
pub(super) async fn pull_exactly<C: Client>(
    client: &C,
    count: usize,
    batch: usize,
) -> Result<Vec<C::RawDelivery>> {
    let mut held = Vec::with_capacity(count);
    while held.len() < count {
        let some = client.pull(batch.min(count - held.len()), std::time::Duration::ZERO).await?;
        if some.is_empty() {
            return Err(format!("the queue ran out after {} of {count} messages", held.len()).into());
        }
        held.extend(some);
    }
    Ok(held)
}

/// Pulls `count` messages to hold, outside any measurement.
pub(super) async fn hold<C: Client>(client: &C, count: usize) -> Result<Vec<C::RawDelivery>> {
    pull_exactly(client, count, FILL).await
}

/// Runs one task per item side by side and returns their results, in no particular order.
pub(super) async fn together<I, T, F>(
    items: impl IntoIterator<Item = I>,
    task: impl Fn(I) -> F,
) -> Result<Vec<T>>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let mut tasks: JoinSet<_> = items.into_iter().map(task).collect();
    let mut made = Vec::with_capacity(tasks.len());
    while let Some(ended) = tasks.join_next().await {
        made.push(ended??);
    }
    Ok(made)
}

/// Deals out the numbers `0..messages` to this many tasks.
pub(super) fn shares(messages: usize, tasks: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let share = messages.div_ceil(tasks);
    (0..tasks).map(move |task| (task * share).min(messages)..((task + 1) * share).min(messages))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(id: MessageId, number: u64) -> Seen {
        Seen { id, number, bytes: 16 }
    }

    #[test]
    fn a_missing_a_repeated_and_a_swapped_message_are_found() {
        let pushed = [MessageId::new(), MessageId::new()];
        let [a, b] = pushed;
        assert!(each_once(&pushed, &[seen(b, 1), seen(a, 0)], 16).is_ok());
        assert!(each_once(&pushed, &[seen(a, 0)], 16).is_err(), "missing");
        assert!(each_once(&pushed, &[seen(a, 0), seen(a, 0)], 16).is_err(), "twice");
        assert!(each_once(&pushed, &[seen(a, 1), seen(b, 0)], 16).is_err(), "swapped");
        assert!(each_once(&pushed, &[seen(a, 0), seen(b, 2)], 16).is_err(), "unknown");
        assert!(each_once(&pushed, &[seen(a, 0), seen(b, 1)], 17).is_err(), "cut");
    }

    #[test]
    fn shares_deal_out_every_number_once() {
        for messages in [0, 1, 63, 64, 65, 1000] {
            let dealt: Vec<_> = shares(messages, 64).flatten().collect();
            assert_eq!(dealt, (0..messages).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_payload_carries_its_number() {
        assert_eq!(number(&payload(7, 256)).unwrap(), 7);
        assert_eq!(payload(7, 256).len(), 256);
        assert!(number(b"short").is_err());
    }
}
