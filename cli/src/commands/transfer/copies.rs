//! The copy of a message for another backend.

use std::time::Duration;

use anyqueue::{Headers, MessageData, RESERVED_HEADER_PREFIX, When, header};
use anyqueue_worker::header as worker_header;
use clap::ValueEnum;

/// What can be dropped from a message.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Without {
    Priority,
    Group,
    DedupKey,
    Ttl,
}

/// The message for the target: with the rest of its time to live, and without its delay, which is over.
pub(super) fn copy(message: &MessageData, age: Duration, without: &[Without]) -> MessageData {
    let mut options = message.options().clone();
    options.delay = None;
    options.expiry = match options.expiry {
        // A redriven message no longer expires, and at the target nothing shows that it was redriven.
        _ if message.headers().contains_key(header::REDRIVEN_AT) => None,
        Some(When::In(time_to_live)) => Some(When::In(time_to_live.saturating_sub(age))),
        other => other,
    };
    for thing in without {
        match thing {
            Without::Priority => options.priority = 0,
            Without::Group => options.group = None,
            Without::DedupKey => options.dedup_key = None,
            Without::Ttl => options.expiry = None,
        }
    }
    message.clone().with_options(options)
}

/// The copy without anyqueue's own headers, which a pushed message may not have.
pub(super) fn live(copy: MessageData) -> MessageData {
    let mut headers = fresh(copy.headers().clone());
    headers.retain(|name, _| !name.starts_with(RESERVED_HEADER_PREFIX));
    copy.with_headers(headers)
}

/// The headers without counts of attempts from before a redrive. The worker recognises those by the time of
/// the redrive, which the copy lacks.
fn fresh(mut headers: Headers) -> Headers {
    let redriven = headers.remove(worker_header::REDRIVEN);
    if redriven.as_ref() != headers.get(header::REDRIVEN_AT) {
        headers.remove(worker_header::ATTEMPTS);
        headers.remove(worker_header::UNKNOWN);
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn message() -> MessageData {
        MessageData::new("a")
            .with_priority(3)
            .with_group("g")
            .with_dedup_key("k")
            .with_delay(MINUTE)
            .with_time_to_live(10 * MINUTE)
            .with_header("mine", "1")
    }

    #[test]
    fn a_copy_has_the_rest_of_its_time_and_no_delay() {
        let original = message();
        let copy = copy(&original, 4 * MINUTE, &[]);
        assert_eq!(copy.id(), original.id());
        assert_eq!(copy.options().delay, None);
        assert_eq!(copy.options().expiry, Some(When::In(6 * MINUTE)));
        assert_eq!((copy.options().priority, copy.options().group.as_deref()), (3, Some("g")));
    }

    #[test]
    fn a_redriven_message_no_longer_expires() {
        let redriven = message().with_header(header::REDRIVEN_AT, "2030-01-01T00:00:00Z");
        let copy = live(copy(&redriven, MINUTE, &[]));
        assert_eq!(copy.options().expiry, None);
        assert_eq!(copy.headers().keys().collect::<Vec<_>>(), ["mine"]);
    }

    #[test]
    fn attempts_before_a_redrive_are_forgotten_and_those_since_are_kept() {
        let attempts = |redriven_at: Option<&str>, counted_at: Option<&str>| {
            let mut message = message().with_header(worker_header::ATTEMPTS, "3");
            for (name, time) in [(header::REDRIVEN_AT, redriven_at), (worker_header::REDRIVEN, counted_at)] {
                if let Some(time) = time {
                    message = message.with_header(name, time);
                }
            }
            live(message).headers().get(worker_header::ATTEMPTS).cloned()
        };
        assert_eq!(attempts(Some("later"), None), None, "they were before it");
        assert_eq!(attempts(Some("later"), Some("earlier")), None);
        assert_eq!(attempts(Some("later"), Some("later")).as_deref(), Some("3"));
        assert_eq!(attempts(None, None).as_deref(), Some("3"));
        // Left over from an earlier move: nothing shows any more when the message was redriven.
        let again =
            live(message().with_header(header::REDRIVEN_AT, "t").with_header(worker_header::REDRIVEN, "t"));
        assert!(!again.headers().contains_key(worker_header::REDRIVEN));
    }

    #[test]
    fn a_copy_lacks_what_is_to_be_dropped() {
        let all = [Without::Priority, Without::Group, Without::DedupKey, Without::Ttl];
        let copy = copy(&message(), MINUTE, &all);
        assert_eq!(*copy.options(), anyqueue::TaskOptions::default());
    }
}
