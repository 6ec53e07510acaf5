//! What things are called on the server.

use anyqueue::PartitionId;

/// The layout of keys and records that this release reads and writes: the score of each partition in their list. Scripts know it
/// too: `LAYOUT`.
pub(crate) const LAYOUT: u32 = 2;

/// The names that belong to one prefix.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    prefix: String,
}

impl Names {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// Where releases before the first kept all messages.
    pub(crate) fn former_messages(&self) -> String {
        format!("{}:messages", self.prefix)
    }

    /// The sorted set of partitions' names.
    pub(crate) fn partitions(&self) -> String {
        format!("{}:partitions", self.prefix)
    }

    /// The set of partitions, in words, that have ids aside whose records are missing.
    pub(crate) fn astray(&self) -> String {
        format!("{}:astray", self.prefix)
    }

    /// The channel on which hints are published.
    pub(crate) fn channel(&self) -> String {
        format!("{}:wake", self.prefix)
    }

    /// What claims of a partition took.
    pub(crate) fn taken(&self, partition: &PartitionId) -> String {
        let state = self.state(partition);
        format!("{}taken", state.trim_end_matches("state"))
    }

    /// A key beside the partition's that never exists; a partition's scripts name it in a cluster. While the slot is moved from one
    /// server to another, neither runs a script that names it, as it has not all the keys: so none sees a part of the partition.
    pub(crate) fn absent(&self, partition: &PartitionId) -> String {
        format!("{}:{{{}}}:absent", self.prefix, partition.name())
    }

    /// A key to try rights on.
    pub(crate) fn trial(&self) -> String {
        format!("{}:trial", self.prefix)
    }

    /// The state of a partition. The scripts know the names of its other keys from this one's; the part in braces puts all of
    /// them, and those of its dead letters, on one server of a cluster.
    pub(crate) fn state(&self, partition: &PartitionId) -> String {
        let dead = if partition.is_dead_letters() { "dead:" } else { "" };
        format!("{}:{{{}}}:{dead}state", self.prefix, partition.name())
    }
}

/// A partition in words, as scripts and hints name it.
pub(crate) fn word(partition: &PartitionId) -> String {
    let kind = char::from(partition_kind(partition));
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

/// A partition as a record says where it is: among the dead letters or not.
pub(crate) fn partition_kind(partition: &PartitionId) -> u8 {
    if partition.is_dead_letters() { b'd' } else { b'l' }
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
        assert_ne!(partition_kind(&mail), partition_kind(&mail.dead_letters()));
        for id in [mail.clone(), mail.dead_letters()] {
            assert_eq!(partition(&word(&id)), Some(id));
        }
    }
}
