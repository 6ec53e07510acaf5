//! FIFO queues: which group a message is in, what makes it a repetition, and who of a group goes first.

use std::collections::HashSet;
use std::fmt::Write;

use anyqueue::{MessageData, MessageId};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::receive::Taken;

/// The longest name of a group that is sent as it is. The server takes 128 characters.
const MAX_PLAIN_CHARS: usize = 100;

/// What a message is sent to a FIFO queue with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sequence {
    pub(crate) group: String,
    /// The server stores no second message with this within five minutes.
    pub(crate) dedup: String,
}

impl Sequence {
    /// Of one call that pushes a message. Another call is another push, whatever the message's id: the server remembers for five minutes
    /// also what was deleted meanwhile, and would answer as stored what it drops. So a message that comes back here, by a move or from its
    /// own handler, would be lost.
    pub(crate) fn pushed(message: &MessageData) -> Self {
        Self { group: group(message), dedup: format!("push-{}", Uuid::new_v4()) }
    }

    /// Of the copy of a message that the server calls `source`: made again after a cut it is the same, but another one is made of each
    /// copy, so that none is lost. Dead letters know no groups.
    pub(crate) fn copied(message: &MessageData, source: &str, is_dead: bool) -> Self {
        let group = if is_dead { alone(message.id()) } else { group(message) };
        Self { group, dedup: format!("copy-{source}") }
    }
}

/// The group on the server. The server takes no other characters than these and some signs.
fn group(message: &MessageData) -> String {
    let Some(group) = message.options().group.as_deref() else { return alone(message.id()) };
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    if group.len() <= MAX_PLAIN_CHARS && group.chars().all(allowed) {
        return format!("g-{group}");
    }
    let mut name = "h-".to_owned();
    for byte in Sha256::digest(group.as_bytes()) {
        // Writing to a string does not fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// The group of a message that is in none: its own, so that it waits for nobody.
fn alone(id: MessageId) -> String {
    format!("m-{id}")
}

/// Whether nobody can wait behind this message.
pub(crate) fn is_alone(message: &MessageData, group: &str) -> bool {
    group == alone(message.id())
}

/// The first of each group, and those behind them: the server hands out several of a group at once.
pub(crate) fn heads(taken: Vec<Taken>) -> (Vec<Taken>, Vec<Taken>) {
    let mut groups = HashSet::new();
    taken
        .into_iter()
        .partition(|taken| taken.claim.group.as_ref().is_none_or(|group| groups.insert(group.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_groups_share_a_name_and_all_names_are_allowed() {
        let long = "x".repeat(MAX_PLAIN_CHARS + 1);
        let lonely = MessageData::new("x");
        let own = alone(lonely.id());
        let groups = ["a", "A", "a b", "ä", "a-b", "m-a", own.as_str(), long.as_str()];
        let mut names: Vec<_> =
            groups.iter().map(|name| group(&MessageData::new("x").with_group(*name))).collect();
        names.push(group(&lonely));
        let allowed = |c: char| c.is_ascii_graphic();
        assert!(names.iter().all(|name| name.len() <= 128 && name.chars().all(allowed)), "{names:?}");
        let distinct: HashSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
    }

    #[test]
    fn each_push_of_a_message_is_one_of_its_own_in_the_same_group() {
        let message = MessageData::new("x").with_group("g");
        let (first, second) = (Sequence::pushed(&message), Sequence::pushed(&message));
        assert_eq!(first.group, second.group);
        assert_ne!(first.dedup, second.dedup);
    }

    #[test]
    fn a_copy_is_told_from_its_push_and_from_the_next_copy() {
        let message = MessageData::new("x").with_group("g");
        let pushed = Sequence::pushed(&message);
        let (first, second) = (Sequence::copied(&message, "1", false), Sequence::copied(&message, "2", true));
        let ids: HashSet<_> = [&pushed, &first, &second].map(|sequence| sequence.dedup.clone()).into();
        assert_eq!(ids.len(), 3);
        assert_eq!((first.group, first.dedup), (pushed.group, Sequence::copied(&message, "1", true).dedup));
        assert!(is_alone(&message, &second.group), "dead letters know no groups");
    }
}
