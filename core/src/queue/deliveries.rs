//! Which deliveries count towards `max_deliveries`, where the server counts releases too.
//!
//! On such a server the server's count alone would send messages to the dead letters that no handler has ever
//! seen: messages released by other processes, or taken and returned by an adapter. Each process knows its
//! own releases and failures. If those do not explain a count over the limit, the message gets a second
//! chance: it is put back with a note of how many of its deliveries are taken for releases. A message with
//! that note is released by renewing the note, so that from then on every process knows of every release. So
//! a release never leads to the dead letters, and a message that kills its consumers every time goes there
//! after at most twice the limit.

use crate::capabilities::{Capabilities, DeliveryCount};
use crate::counts::MessageCounts;
use crate::message::{Headers, MessageData, MessageId, header};
use crate::storage::Action;

/// How many messages' releases and failures are remembered.
const REMEMBERED: usize = 10_000;

/// What this process knows of earlier deliveries.
#[derive(Debug)]
pub(crate) struct DeliveryCounts {
    /// `None` where the server itself distinguishes releases from other deliveries.
    own: Option<Own>,
    /// Whether a message can be put back with other headers.
    can_note: bool,
}

#[derive(Debug)]
struct Own {
    released: MessageCounts,
    failed: MessageCounts,
}

/// What happens to a message because of the number of its deliveries.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    HandedOut,
    /// Put back with these headers: its deliveries may have been releases by others.
    SecondChance(Headers),
    Dead,
}

impl DeliveryCounts {
    pub(crate) fn new(capabilities: &Capabilities) -> Self {
        let counts_all = capabilities.delivery_count == DeliveryCount::Deliveries;
        let memory = || MessageCounts::new(REMEMBERED);
        Self {
            own: counts_all.then(|| Own { released: memory(), failed: memory() }),
            can_note: capabilities.postpone_headers && capabilities.postpone_delay.is_some(),
        }
    }

    /// Notes that a delivery is about to end with this action.
    pub(crate) fn note(&self, id: MessageId, action: &Action) {
        let Some(own) = &self.own else { return };
        match action {
            // The note in the headers tells everybody.
            Action::Postpone { headers: Some(headers), .. } if headers.contains_key(header::RELEASED) => {
                own.forget(id);
            }
            Action::Release | Action::Postpone { .. } => drop(own.released.add(id)),
            Action::Retry => self.failed(id),
            Action::Move { .. } | Action::Remove => own.forget(id),
        }
    }

    /// Notes that a delivery ended not by a release but as a failure, or with its lease.
    pub(crate) fn failed(&self, id: MessageId) {
        if let Some(own) = &self.own {
            own.failed.add(id);
        }
    }

    /// Decides whether a message that is delivered for the `count`th time may be handed out, if `most`
    /// deliveries are allowed.
    pub(crate) fn judge(&self, message: &MessageData, count: u32, most: u32) -> Judged {
        let Some(own) = &self.own else {
            return if count > most { Judged::Dead } else { Judged::HandedOut };
        };
        let noted = noted(message, count);
        let released = own.released.of(message.id());
        let left = count.saturating_sub(noted.unwrap_or(0)).saturating_sub(released);
        if left <= most {
            return Judged::HandedOut;
        }
        let failed = own.failed.of(message.id());
        // All deliveries but this one are failures seen here: nobody else can have released the message.
        let is_explained = left.saturating_sub(1) <= failed;
        if noted.is_some() || is_explained || !self.can_note {
            return Judged::Dead;
        }
        own.forget(message.id());
        Judged::SecondChance(with_note(message, count.saturating_sub(failed)))
    }

    /// Returns the headers with which a message that has a note goes back, if this delivery is to count as a
    /// release.
    pub(crate) fn renewed(&self, message: &MessageData, count: Option<u32>) -> Option<Headers> {
        let own = self.own.as_ref()?;
        let noted = noted(message, count?)?;
        let released = noted.saturating_add(own.released.of(message.id())).saturating_add(1);
        Some(with_note(message, released))
    }
}

impl Own {
    fn forget(&self, id: MessageId) {
        self.released.forget(id);
        self.failed.forget(id);
    }
}

/// How many of its deliveries are noted as releases. A note that is not below the count is from another
/// place, where the message was counted before.
fn noted(message: &MessageData, count: u32) -> Option<u32> {
    let noted = message.headers().get(header::RELEASED)?.parse().ok()?;
    (noted < count).then_some(noted)
}

fn with_note(message: &MessageData, released: u32) -> Headers {
    let mut headers = message.headers().clone();
    headers.insert(header::RELEASED.to_owned(), released.to_string());
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting(can_note: bool) -> DeliveryCounts {
        let memory = || MessageCounts::new(REMEMBERED);
        DeliveryCounts { own: Some(Own { released: memory(), failed: memory() }), can_note }
    }

    #[test]
    fn a_server_that_tells_releases_apart_is_believed() {
        let counts = DeliveryCounts { own: None, can_note: true };
        let message = MessageData::new(b"x");
        counts.note(message.id(), &Action::Release);
        assert_eq!(counts.judge(&message, 3, 3), Judged::HandedOut);
        assert_eq!(counts.judge(&message, 4, 3), Judged::Dead);
        assert_eq!(counts.renewed(&message, Some(4)), None);
    }

    #[test]
    fn failures_seen_here_kill_at_once_and_releases_made_here_never() {
        let (counts, message) = (counting(true), MessageData::new(b"x"));
        for _ in 0..3 {
            counts.note(message.id(), &Action::Retry);
        }
        assert_eq!(counts.judge(&message, 4, 3), Judged::Dead);
        counts.note(message.id(), &Action::Release);
        assert_eq!(counts.judge(&message, 4, 3), Judged::HandedOut, "the fourth delivery after a release");
    }

    #[test]
    fn deliveries_that_nobody_here_knows_of_are_taken_for_releases_once() {
        let (counts, message) = (counting(true), MessageData::new(b"x"));
        let Judged::SecondChance(headers) = counts.judge(&message, 4, 3) else {
            panic!("no second chance");
        };
        assert_eq!(headers.get(header::RELEASED).map(String::as_str), Some("4"));
        let noted = message.with_headers(headers);
        assert_eq!(counts.judge(&noted, 5, 3), Judged::HandedOut);
        assert_eq!(counts.judge(&noted, 7, 3), Judged::HandedOut);
        assert_eq!(counts.judge(&noted, 8, 3), Judged::Dead, "twice the limit, and no release in between");
    }

    #[test]
    fn releases_are_noted_on_a_message_that_has_a_note() {
        let (counts, message) = (counting(true), MessageData::new(b"x"));
        let noted = |n: u32| message.clone().with_headers(with_note(&message, n));
        assert_eq!(counts.renewed(&message, Some(9)), None, "a message without a note is released as always");
        assert_eq!(counts.renewed(&noted(4), Some(5)), Some(with_note(&message, 5)));
    }

    #[test]
    fn a_note_from_elsewhere_and_one_that_is_no_number_are_ignored() {
        let (counts, message) = (counting(true), MessageData::new(b"x"));
        let elsewhere = message.clone().with_headers(with_note(&message, 100));
        assert!(matches!(counts.judge(&elsewhere, 4, 3), Judged::SecondChance(_)));
        let mut headers = Headers::new();
        headers.insert(header::RELEASED.to_owned(), "many".to_owned());
        assert!(matches!(counts.judge(&message.with_headers(headers), 4, 3), Judged::SecondChance(_)));
    }

    #[test]
    fn where_no_note_can_be_left_the_count_is_all_there_is() {
        let (counts, message) = (counting(false), MessageData::new(b"x"));
        assert_eq!(counts.judge(&message, 4, 3), Judged::Dead);
    }
}
