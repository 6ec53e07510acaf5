//! Statuses as actions: what a settlement asks of the storage.

use std::time::{Duration, SystemTime};

use super::ending::{TaskReport, attempt};
use super::guard;
use super::shared::Shared;
use crate::error::{Error, Operation, Result};
use crate::message::{Headers, MAX_KEY_BYTES, MessageData, RESERVED_HEADER_PREFIX, header};
use crate::partition::PartitionId;
use crate::status::{MAX_REASON_BYTES, QueueMessageStatus};
use crate::storage::Action;

impl Shared {
    /// Returns what a status asks of the storage for this message, given how long it has been held.
    pub(super) fn action(
        &self,
        partition: &PartitionId,
        message: &MessageData,
        delivery_count: Option<u32>,
        held: impl FnOnce() -> Duration,
        status: &QueueMessageStatus,
        report: Option<&TaskReport>,
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
                let made = Made {
                    deliveries: delivery_count,
                    attempts: attempt(message, true, report),
                    worker: report.and_then(|report| report.worker.as_deref()),
                    ran: Some(report.and_then(|report| report.ran).unwrap_or_else(held)),
                };
                Ok(dead_letter(partition, message, made, reason, self.caller.clock.wall()))
            }
        }
    }

    /// Returns how a delivery goes back that does not count as a failure.
    pub(super) fn returned(&self, message: &MessageData, delivery_count: Option<u32>) -> Action {
        match self.noted(message, delivery_count, None) {
            Some(headers) => Action::Postpone { delay: Duration::ZERO, headers: Some(headers) },
            None => Action::Release,
        }
    }

    /// Returns the headers of a message that goes back, with a note of this release if it already has one and
    /// there is room.
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

    /// Whether the message with these headers is within the limits.
    pub(super) fn fits(&self, message: &MessageData, headers: &Headers) -> bool {
        let encoded_len = self.storage().encoded_len(&message.clone().with_headers(headers.clone()));
        encoded_len <= self.capabilities.limits.message_bytes
    }

    /// Returns the new headers; those that anyqueue wrote stay.
    fn new_headers(&self, message: &MessageData, new: &Headers) -> Result<Headers> {
        if !self.capabilities.postpone_headers {
            return Err(guard::unsupported("new headers when postponing"));
        }
        let old = message.headers();
        let mut headers = new.clone();
        headers.retain(|name, value| {
            !(name.starts_with(RESERVED_HEADER_PREFIX) && old.get(name) == Some(value))
        });
        guard::headers(&headers)?;
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

/// The deliveries and attempts of a message until it died.
#[derive(Clone, Copy)]
pub(super) struct Made<'a> {
    /// `None` if they are not counted.
    pub(super) deliveries: Option<u32>,
    pub(super) attempts: u32,
    /// Who made the last attempt, if known.
    pub(super) worker: Option<&'a str>,
    /// How long that attempt ran; `None` if no handler had the message.
    pub(super) ran: Option<Duration>,
}

/// The move into the dead letters, with reason, counts and times in the headers.
pub(super) fn dead_letter(
    partition: &PartitionId,
    message: &MessageData,
    made: Made<'_>,
    reason: &str,
    now: SystemTime,
) -> Action {
    let mut headers = message.headers().clone();
    headers.remove(header::RELEASED);
    headers.insert(header::DEAD_REASON.to_owned(), cut(reason, MAX_REASON_BYTES).to_owned());
    headers.insert(header::DEAD_AT.to_owned(), humantime::format_rfc3339_millis(now).to_string());
    headers.insert(header::DEAD_ATTEMPTS.to_owned(), made.attempts.to_string());
    if let Some(count) = made.deliveries {
        headers.insert(header::DEAD_DELIVERIES.to_owned(), count.to_string());
    }
    if let Some(worker) = made.worker {
        headers.insert(header::DEAD_WORKER.to_owned(), cut(worker, MAX_KEY_BYTES).to_owned());
    }
    if let Some(ran) = made.ran {
        headers.insert(header::DEAD_RAN.to_owned(), time_text(ran));
    }
    Action::Move { to: partition.dead_letters(), headers: Some(headers) }
}

/// Cuts a text to this many bytes, at a character boundary.
fn cut(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}

/// A time as text that people can read too, in whole microseconds.
fn time_text(time: Duration) -> String {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    humantime::format_duration(Duration::from_micros(micros)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::DEATH_BYTES;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(cut("short", 5), "short");
        let long = "ä".repeat(8);
        assert_eq!(cut(&long, 8).len(), 8);
        assert_eq!(cut(&format!("x{long}"), 8).len(), 7);
    }

    #[test]
    fn what_is_noted_on_a_dead_letter_fits_into_the_room_that_is_kept_for_it() {
        let (message, long) = (MessageData::new("x"), "ä".repeat(MAX_REASON_BYTES));
        let made = Made {
            deliveries: Some(u32::MAX),
            attempts: u32::MAX,
            worker: Some(&long),
            ran: Some(Duration::MAX),
        };
        let partition = PartitionId::new("p").unwrap();
        let action = dead_letter(&partition, &message, made, &long, SystemTime::UNIX_EPOCH);
        let Action::Move { headers: Some(headers), .. } = action else { panic!("it is no move") };
        // Each of the two texts of a header has a length before it, in up to three bytes.
        let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len() + 6).sum();
        assert!(headers.len() == 6 && bytes as u64 <= DEATH_BYTES, "{bytes}: {headers:?}");
        let ran = headers.get(header::DEAD_RAN).and_then(|ran| humantime::parse_duration(ran).ok());
        assert_eq!(ran, Some(Duration::from_micros(u64::MAX)));
    }
}
