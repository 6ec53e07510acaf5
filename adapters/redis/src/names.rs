//! The names of keys on the server.

use anyqueue::PartitionId;

/// The layout of keys and records that this release reads and writes. It is the score of each partition in
/// the list of partitions. Scripts have the same constant, `LAYOUT`.
pub(crate) const LAYOUT: u32 = 2;
/// The layout of a partition in which a message was amended or can become urgent; earlier releases would not
/// find such a message. Scripts have the same constant, `AMENDED_LAYOUT`.
pub(crate) const AMENDED_LAYOUT: u32 = 3;
/// The layout of a partition in which several members of a group were in front at once, or a message was
/// disabled. Scripts have the same constant, `COUNTED_LAYOUT`.
pub(crate) const COUNTED_LAYOUT: u32 = 4;

/// The names for one prefix.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    prefix: String,
}

impl Names {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// The key in which versions before the first release stored all messages.
    pub(crate) fn former_messages(&self) -> String {
        format!("{}:messages", self.prefix)
    }

    /// The sorted set of partition names.
    pub(crate) fn partitions(&self) -> String {
        format!("{}:partitions", self.prefix)
    }

    /// The sorted set of partitions with ends that expire.
    pub(crate) fn ended(&self) -> String {
        format!("{}:ended", self.prefix)
    }

    /// The set of partitions, as text, that have ids without records.
    pub(crate) fn astray(&self) -> String {
        format!("{}:astray", self.prefix)
    }

    /// The channel on which hints are published.
    pub(crate) fn channel(&self) -> String {
        format!("{}:wake", self.prefix)
    }

    /// The hash of what the claims of a partition hold.
    pub(crate) fn taken(&self, partition: &PartitionId) -> String {
        let state = self.state(partition);
        format!("{}taken", state.trim_end_matches("state"))
    }

    /// A key in the partition's slot that never exists. In a cluster, every script names it. While a slot
    /// moves between servers, neither server has all keys of the script, so both refuse it. So no script sees
    /// only a part of a partition.
    pub(crate) fn absent(&self, partition: &PartitionId) -> String {
        format!("{}:{{{}}}:absent", self.prefix, partition.name())
    }

    /// The hash of control entries, their names, when they expire, and a key in their slot that never exists
    /// (see [`absent`](Self::absent)). The part in braces puts them on one server of a cluster.
    pub(crate) fn control(&self) -> [String; 4] {
        ["entries", "names", "lapses", "absent"].map(|what| format!("{}:{{:control}}:{what}", self.prefix))
    }

    /// A key for trying permissions.
    pub(crate) fn trial(&self) -> String {
        format!("{}:trial", self.prefix)
    }

    /// The state of a partition. Scripts derive the names of its other keys from this one. The part in braces puts all of them,
    /// and those of the dead letters, on one server of a cluster.
    pub(crate) fn state(&self, partition: &PartitionId) -> String {
        let dead = if partition.is_dead_letters() { "dead:" } else { "" };
        format!("{}:{{{}}}:{dead}state", self.prefix, partition.name())
    }
}

/// A partition as text, as scripts and hints name it.
pub(crate) fn word(partition: &PartitionId) -> String {
    let kind = char::from(partition_kind(partition));
    format!("{kind} {}", partition.name())
}

/// Reads a partition from such a text.
pub(crate) fn partition(word: &str) -> Option<PartitionId> {
    let (kind, name) = word.split_once(' ')?;
    let live = PartitionId::new(name).ok()?;
    match kind {
        "l" => Some(live),
        "d" => Some(live.dead_letters()),
        _ => None,
    }
}

/// The kind of a partition in a record: `l` for live, `d` for dead letters.
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
        assert!(PartitionId::new(":control").is_err(), "control entries have this slot");
    }
}
