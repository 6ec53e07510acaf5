//! From statuses to actions, and many settlements at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;

use super::caller::Caller;
use super::coalesce::Call;
use super::handler::QueueMessageHandler;
use super::stream::WindowSlot;
use super::{Queue, Shared, guard};
use crate::error::{Error, Operation, Result};
use crate::message::{Headers, MessageData, RESERVED_HEADER_PREFIX, header};
use crate::partition::PartitionId;
use crate::status::{MAX_REASON_BYTES, QueueMessageStatus};
use crate::storage::{Action, SettleOutcome, Settlement};

/// Where the outcome of a settlement arrives. Whoever drops it leaves the settlement to be carried through.
pub(crate) type Reply = oneshot::Receiver<Result<SettleOutcome>>;

/// A settlement to be joined with others, and the room in a stream's window that it makes.
pub(crate) struct SettleRequest {
    pub(crate) settlement: Settlement,
    pub(crate) window: Option<Arc<WindowSlot>>,
}

impl From<Settlement> for SettleRequest {
    fn from(settlement: Settlement) -> Self {
        Self { settlement, window: None }
    }
}

/// Joined settlements; what comes next for a stream comes with them.
pub(crate) struct SettleCall(pub(crate) Caller);

impl Call for SettleCall {
    type Lane = Option<PartitionId>;
    type Request = SettleRequest;
    type Answer = Result<SettleOutcome>;

    async fn call(&self, _: &Self::Lane, requests: Vec<SettleRequest>) -> Vec<Self::Answer> {
        let (settlements, windows): (Vec<_>, Vec<_>) =
            requests.into_iter().map(|request| (request.settlement, request.window)).unzip();
        // Of several streams the first has its turn; the others' pumps see the room.
        let feed = windows.iter().flatten().next().map(|slot| slot.feed().clone());
        let is_fed =
            |slot: &&Arc<WindowSlot>| feed.as_ref().is_some_and(|feed| Arc::ptr_eq(feed, slot.feed()));
        let settling = windows.iter().flatten().filter(is_fed).count();
        let Some(mut refill) = feed.as_ref().and_then(|feed| feed.refill(settling, &settlements)) else {
            return self.0.settle(&settlements).await;
        };
        let call = self.0.exchange(&settlements, refill.partition(), refill.request());
        let (answers, pulled) = refill.made(call).await;
        match pulled {
            Ok(deliveries) => {
                let settled = windows.iter().zip(&answers).filter(|(_, answer)| answer.is_ok());
                let slots = settled.filter_map(|(slot, _)| slot.as_ref()).filter(is_fed);
                refill.deliver(deliveries, slots.filter_map(|slot| slot.pass_on()).collect());
            }
            // The pump sees the room, and meets the error itself if it lasts.
            Err(error) => {
                drop(refill);
                tracing::debug!(%error, "a settlement brought no deliveries");
            }
        }
        self.0.settle_failed(&settlements, answers).await
    }

    fn size(&self, _: &SettleRequest) -> u64 {
        0
    }
}

impl Queue {
    /// Settles many deliveries in as few calls as the backend allows; what others settle meanwhile may share them. One answer per
    /// delivery, in order, as [`QueueMessageHandler::settle`] would give; what failed can be settled again.
    ///
    /// # Cancellation
    /// Once polled, all of it is carried through.
    pub async fn settle_many<'a>(
        &self,
        deliveries: impl IntoIterator<Item = (&'a mut QueueMessageHandler, QueueMessageStatus)>,
    ) -> Vec<Result<SettleOutcome>> {
        let mut deliveries: Vec<_> =
            deliveries.into_iter().map(|(handler, status)| (handler, status, None)).collect();
        let mut lanes: HashMap<_, (Vec<_>, Vec<_>)> = HashMap::new();
        for (handler, status, refused) in &mut deliveries {
            match handler.prepare(status.clone()) {
                Ok(Some(request)) => {
                    self.0.deliveries.note(request.settlement.lease.id, &request.settlement.action);
                    let lane = self.0.settle_lane(&request.settlement.lease.partition);
                    let (handlers, requests) = lanes.entry(lane).or_default();
                    handlers.push(handler);
                    requests.push(request);
                }
                Ok(None) => {}
                Err(error) => *refused = Some(error),
            }
        }
        for (lane, (handlers, requests)) in lanes {
            let replies = self.0.settler.submit_many(&self.0.exec, lane, requests);
            for (handler, reply) in handlers.into_iter().zip(replies) {
                handler.begun(reply);
            }
        }
        let mut outcomes = Vec::with_capacity(deliveries.len());
        for (handler, status, refused) in deliveries {
            outcomes.push(match refused {
                None => handler.outcome(&status).await,
                Some(error) => Err(error),
            });
        }
        outcomes
    }
}

impl Shared {
    /// Hands a settlement over, and answers where its outcome will arrive.
    pub(crate) fn hand_over(&self, request: SettleRequest) -> Reply {
        self.deliveries.note(request.settlement.lease.id, &request.settlement.action);
        let lane = self.settle_lane(&request.settlement.lease.partition);
        self.settler.submit(&self.exec, lane, request)
    }

    /// What a status asks of the storage for this message.
    pub(crate) fn action(
        &self,
        partition: &PartitionId,
        message: &MessageData,
        delivery_count: Option<u32>,
        status: &QueueMessageStatus,
    ) -> Result<Action> {
        let stamp = |error: Error| error.with_backend(self.name()).with_operation(Operation::Settle);
        match status {
            QueueMessageStatus::Waiting | QueueMessageStatus::Running => {
                Ok(self.returned(message, delivery_count))
            }
            QueueMessageStatus::Failed => Ok(Action::Retry),
            QueueMessageStatus::Processed | QueueMessageStatus::Cancelled => Ok(Action::Remove),
            QueueMessageStatus::Postponed { delay, headers } => {
                guard::delay(*delay, self.capabilities.postpone_delay, "a delay when postponing")
                    .map_err(stamp)?;
                let headers =
                    headers.as_ref().map(|new| self.new_headers(message, new)).transpose().map_err(stamp)?;
                let headers = self.noted(message, delivery_count, headers);
                Ok(Action::Postpone { delay: *delay, headers })
            }
            // A dead letter stays one: it goes to the end.
            QueueMessageStatus::Poisonous { .. } if partition.is_dead_letters() => {
                Ok(Action::Postpone { delay: Duration::ZERO, headers: None })
            }
            QueueMessageStatus::Poisonous { reason } => {
                Ok(dead_letter(partition, message, delivery_count, reason, self.caller.clock.wall()))
            }
        }
    }

    /// How a delivery goes back that does not count as a failure.
    pub(crate) fn returned(&self, message: &MessageData, delivery_count: Option<u32>) -> Action {
        match self.noted(message, delivery_count, None) {
            Some(headers) => Action::Postpone { delay: Duration::ZERO, headers: Some(headers) },
            None => Action::Release,
        }
    }

    /// The headers of a message that goes back, with a note of this release if it has one already and there is room.
    fn noted(
        &self,
        message: &MessageData,
        delivery_count: Option<u32>,
        headers: Option<Headers>,
    ) -> Option<Headers> {
        let Some(mut renewed) = self.deliveries.renewed(message, delivery_count) else { return headers };
        if let Some(headers) = &headers
            && let Some(note) = renewed.remove(header::RELEASED)
        {
            renewed = headers.clone();
            renewed.insert(header::RELEASED.to_owned(), note);
        }
        if self.fits(message, &renewed) { Some(renewed) } else { headers }
    }

    /// Whether the message is within the limits with these headers.
    pub(crate) fn fits(&self, message: &MessageData, headers: &Headers) -> bool {
        let encoded_len = self.storage().encoded_len(&message.clone().with_headers(headers.clone()));
        encoded_len <= self.capabilities.limits.message_bytes
    }

    /// Replaced headers; those that anyqueue wrote stay.
    fn new_headers(&self, message: &MessageData, new: &Headers) -> Result<Headers> {
        if !self.capabilities.postpone_headers {
            return Err(guard::unsupported("new headers when postponing"));
        }
        let old = message.headers();
        let mut headers = new.clone();
        headers.retain(|name, value| {
            !(name.starts_with(RESERVED_HEADER_PREFIX) && old.get(name) == Some(value))
        });
        guard::headers(&headers, false)?;
        let reserved = old.iter().filter(|(name, _)| name.starts_with(RESERVED_HEADER_PREFIX));
        headers.extend(reserved.map(|(name, value)| (name.clone(), value.clone())));
        let encoded_len = self.storage().encoded_len(&message.clone().with_headers(headers.clone()));
        let limit = self.capabilities.limits.message_bytes;
        if encoded_len > limit {
            return Err(guard::too_large(encoded_len, limit));
        }
        Ok(headers)
    }
}

/// The move into the dead letters, with reason, count and time in the headers.
pub(crate) fn dead_letter(
    partition: &PartitionId,
    message: &MessageData,
    delivery_count: Option<u32>,
    reason: &str,
    now: SystemTime,
) -> Action {
    let mut headers = message.headers().clone();
    headers.remove(header::RELEASED);
    headers.insert(header::DEAD_REASON.to_owned(), cut(reason).to_owned());
    headers.insert(header::DEAD_AT.to_owned(), humantime::format_rfc3339_millis(now).to_string());
    if let Some(count) = delivery_count {
        headers.insert(header::DEAD_DELIVERIES.to_owned(), count.to_string());
    }
    Action::Move { to: partition.dead_letters(), headers: Some(headers) }
}

/// At most [`MAX_REASON_BYTES`], at a character boundary.
fn cut(reason: &str) -> &str {
    reason.get(..reason.floor_char_boundary(MAX_REASON_BYTES)).unwrap_or(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        let long = "ä".repeat(MAX_REASON_BYTES);
        assert_eq!(cut(&long).len(), MAX_REASON_BYTES);
        assert_eq!(cut(&format!("x{long}")).len(), MAX_REASON_BYTES - 1);
    }
}
