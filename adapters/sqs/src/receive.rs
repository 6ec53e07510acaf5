//! Receiving messages, and turning them into messages that can be delivered.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyqueue::Result;
use anyqueue::adapter::Envelope;
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName as Name};

use crate::clock::ATTRIBUTE_GRAIN;
use crate::delays::delays;
use crate::entries::{ChangeVisibility, Delete, Outgoing};
use crate::error::Refused;
use crate::in_flight::{Claim, whole_secs};
use crate::limits::MAX_LEASE;
use crate::names::LevelQueue;
use crate::received::{Received, split_groups};
use crate::record;
use crate::shared::Inner;
use crate::unpack::{Content, unpack};

/// A request for messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveRequest {
    pub(crate) max: usize,
    pub(crate) wait_secs: u64,
    pub(crate) lease: Duration,
}

impl Inner {
    /// Sends one request to one queue. A missing queue counts as empty.
    pub(crate) async fn receive(
        &self,
        level_queue: &LevelQueue,
        url: &str,
        request: ReceiveRequest,
    ) -> Result<Vec<Received>> {
        let received_at = Instant::now();
        let answer =
            self.server.receive(url, request.max, request.wait_secs, whole_secs(request.lease)).await;
        let messages = match answer {
            Ok(messages) => messages,
            Err(Refused::NoQueue) => {
                self.queues.forget(level_queue, url);
                return Ok(Vec::new());
            }
            Err(refused) => return Err(refused.into_error()),
        };
        let mut received = Vec::with_capacity(messages.len());
        let mut early = Vec::new();
        for message in messages {
            let group = self.group(&message);
            let Some(parsed) = self.parse(&message, group.as_deref(), received_at) else { continue };
            if let Some(left) = parsed.left {
                early.push((parsed, left));
                continue;
            }
            let mut claim = Claim::new(
                level_queue.clone(),
                parsed.receipt_handle,
                parsed.content.message,
                received_at,
                received_at + request.lease,
            );
            claim.stored = parsed.content.stored;
            claim.message_id = message.message_id.as_deref().unwrap_or_default().into();
            claim.group = group;
            claim.pushed_at = parsed.pushed_at;
            claim.deliveries = parsed.deliveries;
            let (age, unreadable) = (parsed.age, parsed.content.unreadable);
            received.push(Received { claim, lease: request.lease, age, arrived: Instant::now(), unreadable });
        }
        self.postpone_early(level_queue, early).await;
        Ok(self.first_of_groups(received))
    }

    /// Returns the first message of each group, and holds its followers until their turn comes.
    fn first_of_groups(&self, received: Vec<Received>) -> Vec<Received> {
        let (firsts, followers) = split_groups(received);
        if !followers.is_empty() {
            let expired = self.group_backlog.hold(followers);
            self.unseen_receives.note_all(&expired);
        }
        firsts
    }

    fn group(&self, message: &Message) -> Option<Arc<str>> {
        let group = message.attributes.as_ref()?.get(&Name::MessageGroupId)?;
        self.config.fifo.then(|| group.as_str().into())
    }

    /// Postpones messages that are not due by a visibility timeout, for as long as needed or as the server
    /// allows. If too many are postponed already, sends them again. If neither works, they are delivered
    /// again when their leases end.
    async fn postpone_early(&self, level_queue: &LevelQueue, early: Vec<(Parsed, Duration)>) {
        let has_room = |(_, left): &(Parsed, Duration)| {
            self.config.fifo || self.postponed.add(level_queue, (*left).min(MAX_POSTPONE))
        };
        let (postponed, others): (Vec<_>, Vec<_>) = early.into_iter().partition(has_room);
        let postponed = postponed.into_iter().map(|(parsed, left)| {
            (level_queue.clone(), ChangeVisibility(parsed.receipt_handle, whole_secs(left.min(MAX_POSTPONE))))
        });
        for refused in self.request_all(postponed.collect()).await.into_iter().filter_map(Result::err) {
            tracing::debug!(?refused, "a message that is not due could not be postponed");
        }
        if !others.is_empty() {
            Box::pin(self.send_again(level_queue, others)).await;
        }
    }

    /// Stores copies with the rest of the delay, then deletes the originals of those that were stored.
    async fn send_again(&self, level_queue: &LevelQueue, early: Vec<(Parsed, Duration)>) {
        let mut receipt_handles = Vec::with_capacity(early.len());
        let mut copies = Vec::with_capacity(early.len());
        for (parsed, left) in early {
            let mut envelope = Envelope::new(parsed.content.message, parsed.pushed_at);
            // This receive was not a delivery.
            envelope.prior_deliveries = parsed.deliveries.saturating_sub(1);
            let (delay_secs, due_after_secs) = delays(left);
            let body = match &parsed.content.stored {
                Some(text) => record::encode_unreadable(text, envelope, due_after_secs),
                None => record::encode(&envelope, due_after_secs),
            };
            let Ok(body) = body else { continue };
            receipt_handles.push(parsed.receipt_handle);
            copies.push((level_queue.clone(), Outgoing { body, delay_secs, fifo_ids: None }));
        }
        let stored = self.request_all(copies).await.into_iter().zip(receipt_handles);
        let stored = stored.filter(|(answer, _)| answer.is_ok());
        let deleted = stored.map(|(_, receipt_handle)| (level_queue.clone(), Delete(receipt_handle)));
        for refused in self.request_all(deleted.collect()).await.into_iter().filter_map(Result::err) {
            tracing::debug!(
                ?refused,
                "a message that was sent again could not be deleted, so there are two copies of it"
            );
        }
    }

    /// Reads what is known about a received message. Returns `None` for one that cannot be settled.
    fn parse(&self, message: &Message, group: Option<&str>, asked: Instant) -> Option<Parsed> {
        let receipt_handle: Arc<str> = message.receipt_handle.as_deref()?.into();
        let id = message.message_id.as_deref().unwrap_or_default();
        let content = unpack(message.body.as_deref().unwrap_or_default(), id, group);
        let attributes = Attributes(message.attributes.as_ref());
        let clock = &self.server.clock;
        let sent = attributes.time(&Name::SentTimestamp).unwrap_or_else(|| clock.earliest());
        let receive_count = attributes.number(&Name::ApproximateReceiveCount).unwrap_or(1);
        let first = attributes.time(&Name::ApproximateFirstReceiveTimestamp).unwrap_or(sent);
        // If this is the first receive, the server reports when it happened.
        let (earliest, latest) = if receive_count == 1 {
            clock.observe(first, ATTRIBUTE_GRAIN, asked);
            (first, first)
        } else {
            (clock.earliest().max(first), clock.latest().max(first))
        };
        let due = sent + Duration::from_secs(content.due_after_secs);
        let (early, left) = match content.due_after_secs {
            0 => (0, None),
            _ => (
                early_receptions(first, due),
                due.duration_since(earliest).ok().filter(|left| !left.is_zero()),
            ),
        };
        let (pushed_at, prior) = (content.pushed_at.unwrap_or(sent), content.prior_deliveries);
        Some(Parsed {
            receipt_handle,
            content,
            pushed_at,
            age: latest.duration_since(pushed_at).unwrap_or_default(),
            deliveries: prior
                + receive_count
                    .saturating_sub(early)
                    .saturating_sub(self.unseen_receives.count_of(id))
                    .max(1),
            left,
        })
    }
}

/// The longest postponement at once. It is below the server's limit, since the server counts from the
/// receive.
const MAX_POSTPONE: Duration = MAX_LEASE.saturating_sub(Duration::from_mins(1));

/// Returns how often a message was received before it was due, only to be postponed again.
fn early_receptions(first: SystemTime, due: SystemTime) -> u32 {
    let Ok(early) = due.duration_since(first) else { return 0 };
    let times = early.as_secs().div_ceil(MAX_POSTPONE.as_secs());
    u32::try_from(times).unwrap_or(u32::MAX)
}

/// A parsed message.
struct Parsed {
    receipt_handle: Arc<str>,
    content: Content,
    pushed_at: SystemTime,
    age: Duration,
    deliveries: u32,
    /// How long the message must still wait, if it is not due.
    left: Option<Duration>,
}

/// The message attributes of the server.
struct Attributes<'m>(Option<&'m HashMap<Name, String>>);

impl Attributes<'_> {
    fn text(&self, name: &Name) -> Option<&str> {
        self.0?.get(name).map(String::as_str)
    }

    fn number(&self, name: &Name) -> Option<u32> {
        self.text(name)?.parse().ok()
    }

    fn time(&self, name: &Name) -> Option<SystemTime> {
        let millis = self.text(name)?.parse().ok()?;
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis))
    }
}
