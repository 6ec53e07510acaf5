//! The names of queues on the server.

use std::fmt::Write;

use anyqueue::PartitionId;
use sha2::{Digest, Sha256};

/// The longest name that a queue can have.
const MAX_NAME_CHARS: usize = 80;
/// How many characters of a longer name stay readable.
const READABLE_CHARS: usize = 30;
/// Bytes of the hash in a longer name.
const HASH_BYTES: usize = 20;

/// The queue of one level of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LevelQueue {
    pub(crate) partition: PartitionId,
    pub(crate) level: u8,
}

impl LevelQueue {
    pub(crate) fn new(partition: &PartitionId, level: u8) -> Self {
        Self { partition: partition.clone(), level }
    }
}

/// The names for one prefix.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    prefix: String,
    /// The required suffix for the names of FIFO queues.
    end: &'static str,
}

impl Names {
    pub(crate) fn new(prefix: &str, fifo: bool) -> Self {
        Self { prefix: prefix.to_owned(), end: if fifo { ".fifo" } else { "" } }
    }

    /// The queue's name: `jobs_p0-mail` for the lowest level of `mail`, `jobs_d0-mail` for its dead letters. A `_` in a prefix or
    /// name is doubled and a `.` becomes `_o`, so that no two queues share a name. FIFO queues end with `.fifo`.
    pub(crate) fn queue(&self, level_queue: &LevelQueue) -> String {
        let kind = if level_queue.partition.is_dead_letters() { 'd' } else { 'p' };
        let (prefix, name) = (escaped(&self.prefix), escaped(level_queue.partition.name()));
        let (full, end) = (format!("{prefix}_{kind}{}-{name}", level_queue.level), self.end);
        if full.len() + end.len() <= MAX_NAME_CHARS {
            return full + end;
        }
        let readable: String = full.chars().take(READABLE_CHARS).collect();
        format!("{readable}_h{}{end}", hash(&full))
    }

    /// The name of a queue that does not exist. Asking for it reveals whether the server answers.
    pub(crate) fn nonexistent(&self) -> String {
        format!("{}_n", escaped(&self.prefix).chars().take(MAX_NAME_CHARS / 2).collect::<String>())
    }
}

fn escaped(text: &str) -> String {
    text.replace('_', "__").replace('.', "_o")
}

fn hash(text: &str) -> String {
    let mut hex = String::with_capacity(2 * HASH_BYTES);
    for byte in Sha256::digest(text.as_bytes()).iter().take(HASH_BYTES) {
        // Writing to a string does not fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_allowed_and_no_two_places_share_one() {
        let long = "x".repeat(63);
        let names = ["a", "A", "a.b", "a_b", "a__b", "a_ob", "a-b", ".", "_", "..", "a.fifo"];
        let names: Vec<String> =
            names.iter().map(ToString::to_string).chain([format!("{long}a"), format!("{long}b")]).collect();
        let mut seen = HashSet::new();
        let mut places = 0;
        for prefix in ["p", "p_", "p_p0-a", long.as_str()] {
            for name in &names {
                let live = PartitionId::new(name).unwrap();
                for (partition, level) in [(live.clone(), 0), (live.clone(), 1), (live.dead_letters(), 1)] {
                    for fifo in [false, true] {
                        let queue = Names::new(prefix, fifo).queue(&LevelQueue::new(&partition, level));
                        let plain = queue.strip_suffix(".fifo").unwrap_or(&queue);
                        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
                        assert!(plain.chars().all(allowed), "{queue}");
                        assert_eq!(plain != queue, fifo, "{queue}");
                        assert!(queue.len() <= MAX_NAME_CHARS, "{queue}");
                        seen.insert(queue);
                        places += 1;
                    }
                }
            }
        }
        assert_eq!(seen.len(), places);
    }
}
