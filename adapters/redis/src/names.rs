//! What things are called on the server.

use anyqueue::PartitionId;

/// Marks dead letters where a message says where it is.
const DEAD: u8 = 128;

/// The names that belong to one prefix.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    prefix: String,
}

impl Names {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// The hash of all messages. The scripts know the rest of the names from its own.
    pub(crate) fn messages(&self) -> String {
        format!("{}:messages", self.prefix)
    }

    /// The sorted set of partitions' names.
    pub(crate) fn partitions(&self) -> String {
        format!("{}:partitions", self.prefix)
    }

    /// The channel on which hints are published.
    pub(crate) fn channel(&self) -> String {
        format!("{}:wake", self.prefix)
    }

    /// A key to try rights on.
    pub(crate) fn trial(&self) -> String {
        format!("{}:trial", self.prefix)
    }

    /// The state of a partition.
    pub(crate) fn state(&self, partition: &PartitionId) -> String {
        let dead = if partition.is_dead_letters() { "dead:" } else { "" };
        format!("{}:{{{}}}:{dead}state", self.prefix, partition.name())
    }
}

/// A partition in words, as scripts and hints name it.
pub(crate) fn word(partition: &PartitionId) -> String {
    let kind = if partition.is_dead_letters() { 'd' } else { 'l' };
    format!("{kind} {}", partition.name())
}

/// The partition of this word.
pub(crate) fn partition(word: &str) -> Option<PartitionId> {
    let (kind, name) = word.split_once(' ')?;
    let live = PartitionId::new(name).ok()?;
    match kind {
        "l" => Some(live),
        "d" => Some(live.dead_letters()),
        _ => None,
    }
}

/// A partition as a record says where it is: a length, and the name.
pub(crate) fn place(partition: &PartitionId) -> Vec<u8> {
    let length = u8::try_from(partition.name().len()).unwrap_or(u8::MAX >> 1); // at most 64
    let mut place = vec![if partition.is_dead_letters() { length | DEAD } else { length }];
    place.extend_from_slice(partition.name().as_bytes());
    place
}

/// The length of a name that a place begins with.
pub(crate) fn name_bytes(first: u8) -> usize {
    usize::from(first & !DEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_partitions_share_a_name() {
        let names = Names::new("aq");
        let mail = PartitionId::new("mail").unwrap();
        assert_eq!(names.state(&mail), "aq:{mail}:state");
        assert_eq!(names.state(&mail.dead_letters()), "aq:{mail}:dead:state");
        assert_ne!(place(&mail), place(&mail.dead_letters()));
        for id in [mail.clone(), mail.dead_letters()] {
            assert_eq!(partition(&word(&id)), Some(id));
        }
    }
}
