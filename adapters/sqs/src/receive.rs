//! From what the server hands out to messages that can be delivered.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyqueue::Result;
use anyqueue::adapter::Envelope;
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName as Name};

use crate::clock::ATTRIBUTE_GRAIN;
use crate::delays::delays;
use crate::entries::{Delete, Outgoing, Show};
use crate::error::Refused;
use crate::held::{Claim, whole_secs};
use crate::limits::MAX_LEASE;
use crate::names::Place;
use crate::shared::Inner;
use crate::taken::{Taken, heads};
use crate::unpack::{Content, unpack};
use crate::wire;

/// One request for messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) max: usize,
    pub(crate) wait_secs: u64,
    pub(crate) lease: Duration,
}

impl Inner {
    /// Asks one queue once. A queue that is not there is empty.
    pub(crate) async fn receive(&self, place: &Place, url: &str, ask: Ask) -> Result<Vec<Taken>> {
        let claimed = Instant::now();
        let answer = self.server.receive(url, ask.max, ask.wait_secs, whole_secs(ask.lease)).await;
        let messages = match answer {
            Ok(messages) => messages,
            Err(Refused::NoQueue) => {
                self.queues.forget(place, url);
                return Ok(Vec::new());
            }
            Err(refused) => return Err(refused.into_error()),
        };
        let mut taken = Vec::with_capacity(messages.len());
        let mut early = Vec::new();
        for message in messages {
            let group = self.group(&message);
            let Some(read) = self.read(&message, group.as_deref(), claimed) else { continue };
            if let Some(left) = read.left {
                early.push((read, left));
                continue;
            }
            let mut claim =
                Claim::new(place.clone(), read.receipt, read.content.message, claimed, claimed + ask.lease);
            claim.stored = read.content.stored;
            claim.source = message.message_id.as_deref().unwrap_or_default().into();
            claim.group = group;
            claim.pushed_at = read.pushed_at;
            claim.deliveries = read.deliveries;
            let (age, unreadable) = (read.age, read.content.unreadable);
            taken.push(Taken { claim, lease: ask.lease, age, arrived: Instant::now(), unreadable });
        }
        self.hide(place, early).await;
        Ok(self.first_of_groups(taken))
    }

    /// Leaves the first of each group, and holds those behind them until their turn has come.
    fn first_of_groups(&self, taken: Vec<Taken>) -> Vec<Taken> {
        let (heads, behind) = heads(taken);
        if !behind.is_empty() {
            let ended = self.behind.hold(behind);
            self.given_back.note_all(&ended);
        }
        heads
    }

    fn group(&self, message: &Message) -> Option<Arc<str>> {
        let group = message.attributes.as_ref()?.get(&Name::MessageGroupId)?;
        self.config.fifo.then(|| group.as_str().into())
    }

    /// Hides messages whose delay is longer than the server's own until it is over, or for as long as the server can. Beyond what is
    /// hidden at once they are sent again. Those for which neither can be done come again when their leases end.
    async fn hide(&self, place: &Place, early: Vec<(Read, Duration)>) {
        let has_room =
            |(_, left): &(Read, Duration)| self.config.fifo || self.hidden.add(place, (*left).min(MAX_HIDE));
        let (hidden, others): (Vec<_>, Vec<_>) = early.into_iter().partition(has_room);
        let hidden = hidden
            .into_iter()
            .map(|(read, left)| (place.clone(), Show(read.receipt, whole_secs(left.min(MAX_HIDE)))));
        for refused in self.request_all(hidden.collect()).await.into_iter().filter_map(Result::err) {
            tracing::debug!(?refused, "a message that is not due could not be hidden");
        }
        if !others.is_empty() {
            Box::pin(self.send_again(place, others)).await;
        }
    }

    /// Stores copies with what is left of the delay, then deletes those that have one.
    async fn send_again(&self, place: &Place, early: Vec<(Read, Duration)>) {
        let mut receipts = Vec::with_capacity(early.len());
        let mut copies = Vec::with_capacity(early.len());
        for (read, left) in early {
            let mut envelope = Envelope::new(read.content.message, read.pushed_at);
            // This reception was none of its deliveries.
            envelope.prior_deliveries = read.deliveries.saturating_sub(1);
            let (delay_secs, due_after_secs) = delays(left);
            let body = match &read.content.stored {
                Some(text) => wire::encode_unreadable(text, envelope, due_after_secs),
                None => wire::encode(&envelope, due_after_secs),
            };
            let Ok(body) = body else { continue };
            receipts.push(read.receipt);
            copies.push((place.clone(), Outgoing { body, delay_secs, sequence: None }));
        }
        let stored = self.request_all(copies).await.into_iter().zip(receipts);
        let stored = stored.filter(|(answer, _)| answer.is_ok());
        let deleted = stored.map(|(_, receipt)| (place.clone(), Delete(receipt)));
        for refused in self.request_all(deleted.collect()).await.into_iter().filter_map(Result::err) {
            tracing::debug!(
                ?refused,
                "a message that was sent again could not be deleted; it is there twice"
            );
        }
    }

    /// What is known of a message of this group that was asked for then; `None` for one that cannot be settled.
    fn read(&self, message: &Message, group: Option<&str>, asked: Instant) -> Option<Read> {
        let receipt: Arc<str> = message.receipt_handle.as_deref()?.into();
        let id = message.message_id.as_deref().unwrap_or_default();
        let content = unpack(message.body.as_deref().unwrap_or_default(), id, group);
        let attributes = Attributes(message.attributes.as_ref());
        let clock = &self.server.clock;
        let sent = attributes.time(&Name::SentTimestamp).unwrap_or_else(|| clock.earliest());
        let received = attributes.number(&Name::ApproximateReceiveCount).unwrap_or(1);
        let first = attributes.time(&Name::ApproximateFirstReceiveTimestamp).unwrap_or(sent);
        // The first reception is this one, and the server says when it was.
        let (earliest, latest) = if received == 1 {
            clock.heard(first, ATTRIBUTE_GRAIN, asked);
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
        Some(Read {
            receipt,
            content,
            pushed_at,
            age: latest.duration_since(pushed_at).unwrap_or_default(),
            deliveries: prior + received.saturating_sub(early).saturating_sub(self.given_back.of(id)).max(1),
            left,
        })
    }
}

/// The longest that a message is hidden at once: the server counts from its reception.
const MAX_HIDE: Duration = MAX_LEASE.saturating_sub(Duration::from_mins(1));

/// How often a message was received before it was due, only to be hidden again.
fn early_receptions(first: SystemTime, due: SystemTime) -> u32 {
    let Ok(early) = due.duration_since(first) else { return 0 };
    let times = early.as_secs().div_ceil(MAX_HIDE.as_secs());
    u32::try_from(times).unwrap_or(u32::MAX)
}

/// A message as it came.
struct Read {
    receipt: Arc<str>,
    content: Content,
    pushed_at: SystemTime,
    age: Duration,
    deliveries: u32,
    /// How long it still has to wait.
    left: Option<Duration>,
}

/// What the server says beside the body.
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
