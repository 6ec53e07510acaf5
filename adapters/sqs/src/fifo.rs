//! FIFO queues: message groups, and what makes a message a duplicate.

use std::fmt::Write;

use anyqueue::{MessageData, MessageId};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The longest group name that is sent unchanged. The server accepts 128 characters.
const MAX_PLAIN_CHARS: usize = 100;

/// The group id and deduplication id of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FifoIds {
    pub(crate) group: String,
    /// The server stores no second message with this id within five minutes.
    pub(crate) dedup: String,
}

impl FifoIds {
    /// The ids for one push of a message. With a deduplication key the id is that of the key: the server
    /// drops what is pushed with it in the next five minutes. Without a key, each push gets a new id,
    /// whatever the message's id is. The reason is that the server remembers the ids even of deleted
    /// messages, and reports a dropped duplicate as stored, so a message that comes back here, by a move or
    /// from its own handler, would be lost.
    pub(crate) fn of_push(message: &MessageData) -> Self {
        let dedup = match message.options().dedup_key.as_deref() {
            Some(key) => format!("key-{}", hash(key.as_bytes())),
            None => format!("push-{}", Uuid::new_v4()),
        };
        Self { group: group(message), dedup }
    }

    /// The ids for a copy of the message that the server calls `message_id`. A repeated copy gets the same
    /// id, and a copy of a copy another one, so that none is lost. Dead letters have no groups.
    pub(crate) fn of_copy(message: &MessageData, message_id: &str, is_dead: bool) -> Self {
        let group = if is_dead { own_group(message.id()) } else { group(message) };
        Self { group, dedup: format!("copy-{message_id}") }
    }

    /// The ids for a successor of the delivery with this receipt handle. If the successor is sent again for
    /// the same delivery, it gets the same id, and is stored once. For a later delivery, even of the same
    /// message, it gets another id.
    pub(crate) fn of_successor(message: &MessageData, receipt_handle: &str) -> Self {
        let id = message.id();
        let both = [receipt_handle.as_bytes(), id.as_bytes()].concat();
        Self { group: group(message), dedup: format!("then-{}", hash(&both)) }
    }
}

/// The group on the server, which accepts only these characters and a few signs.
fn group(message: &MessageData) -> String {
    let Some(group) = message.options().group.as_deref() else { return own_group(message.id()) };
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    if group.len() <= MAX_PLAIN_CHARS && group.chars().all(allowed) {
        return format!("g-{group}");
    }
    format!("h-{}", hash(group.as_bytes()))
}

fn hash(bytes: &[u8]) -> String {
    let mut hex = String::new();
    for byte in Sha256::digest(bytes) {
        // Writing to a string does not fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// The group of a message without one: a group of its own, so that it waits for no other message.
fn own_group(id: MessageId) -> String {
    format!("m-{id}")
}

/// What the server's group reveals about a message that cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GroupName {
    /// The message is in this group.
    Group(String),
    /// The message has no group, and this is its id.
    Alone(MessageId),
    /// The group's name is too long, or has other characters.
    Unknown,
}

pub(crate) fn parse_group(group: &str) -> GroupName {
    if let Some(name) = group.strip_prefix("g-") {
        return GroupName::Group(name.to_owned());
    }
    group.strip_prefix("m-").and_then(|id| id.parse().ok()).map_or(GroupName::Unknown, GroupName::Alone)
}

/// Whether no other message can be in the group of this one.
pub(crate) fn is_alone(message: &MessageData, group: &str) -> bool {
    group == own_group(message.id())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_groups_share_a_name_and_all_names_are_allowed() {
        let long = "x".repeat(MAX_PLAIN_CHARS + 1);
        let lonely = MessageData::new("x");
        let lonely_group = own_group(lonely.id());
        let groups = ["a", "A", "a b", "ä", "a-b", "m-a", lonely_group.as_str(), long.as_str()];
        let mut names: Vec<_> =
            groups.iter().map(|name| group(&MessageData::new("x").with_group(*name))).collect();
        names.push(group(&lonely));
        let allowed = |c: char| c.is_ascii_graphic();
        assert!(names.iter().all(|name| name.len() <= 128 && name.chars().all(allowed)), "{names:?}");
        let distinct: HashSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
    }

    #[test]
    fn a_group_tells_what_it_was_made_of() {
        let message = MessageData::new("x");
        assert_eq!(parse_group(&group(&message)), GroupName::Alone(message.id()));
        for name in ["a", "m-a", "h-b", "g-g-"] {
            let grouped = message.clone().with_group(name);
            assert_eq!(parse_group(&group(&grouped)), GroupName::Group(name.to_owned()));
        }
        assert_eq!(parse_group(&group(&message.with_group("ä"))), GroupName::Unknown);
        assert_eq!(parse_group("another's"), GroupName::Unknown);
    }

    #[test]
    fn each_push_of_a_message_is_one_of_its_own_in_the_same_group() {
        let message = MessageData::new("x").with_group("g");
        let (first, second) = (FifoIds::of_push(&message), FifoIds::of_push(&message));
        assert_eq!(first.group, second.group);
        assert_ne!(first.dedup, second.dedup);
    }

    #[test]
    fn a_copy_is_told_from_its_push_and_from_the_next_copy() {
        let message = MessageData::new("x").with_group("g");
        let pushed = FifoIds::of_push(&message);
        let (first, second) = (FifoIds::of_copy(&message, "1", false), FifoIds::of_copy(&message, "2", true));
        let ids: HashSet<_> = [&pushed, &first, &second].map(|fifo_ids| fifo_ids.dedup.clone()).into();
        assert_eq!(ids.len(), 3);
        assert_eq!((first.group, first.dedup), (pushed.group, FifoIds::of_copy(&message, "1", true).dedup));
        assert!(is_alone(&message, &second.group), "dead letters know no groups");
    }

    #[test]
    fn a_successor_has_one_id_for_each_delivery_that_brings_it() {
        let message = MessageData::new("x").with_group("g");
        let first = FifoIds::of_successor(&message, "receipt 1");
        assert_eq!(first, FifoIds::of_successor(&message, "receipt 1"), "it is sent again");
        assert_ne!(first.dedup, FifoIds::of_successor(&message, "receipt 2").dedup);
        let other = FifoIds::of_successor(&MessageData::new("x").with_group("g"), "receipt 1");
        assert_ne!(first.dedup, other.dedup);
        assert_eq!(first.group, other.group);
        assert!(first.dedup.len() <= 128, "the server accepts no more");
    }
}
