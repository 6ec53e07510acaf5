//! The names of queues and exchanges on the server.

use anyqueue::PartitionId;

use crate::limits::PRIORITY_LEVELS;

/// The names for one prefix.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    prefix: String,
}

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

    /// A pseudo queue, which is known as soon as the partition has a level above 0.
    pub(crate) fn any_above_zero(partition: &PartitionId) -> Self {
        Self::new(partition, u8::MAX)
    }

    /// The queue to which the server dead-letters messages of this one: for a live queue it is that of the
    /// dead letters, and for dead letters that of their next level.
    pub(crate) fn dead_letter_queue(&self) -> Self {
        let level =
            if self.partition.is_dead_letters() { (self.level + 1) % PRIORITY_LEVELS } else { self.level };
        Self { partition: self.partition.dead_letters(), level }
    }

    /// The queue as one word of a routing key. Words are separated by dots; partition names can contain dots, but no slashes.
    pub(crate) fn routing_word(&self) -> String {
        let kind = if self.partition.is_dead_letters() { 'd' } else { 'l' };
        format!("{kind}{}:{}", self.level, self.partition.name().replace('.', "/"))
    }

    /// Reads a queue from such a word.
    pub(crate) fn from_routing_word(routing_word: &str) -> Option<Self> {
        let (head, name) = routing_word.split_once(':')?;
        let live = PartitionId::new(&name.replace('/', ".")).ok()?;
        let mut letters = head.chars();
        let partition = match letters.next()? {
            'l' => live,
            'd' => live.dead_letters(),
            _ => return None,
        };
        Some(Self { partition, level: letters.as_str().parse().ok()? })
    }
}

/// Returns the queues of all levels that a partition can have.
pub(crate) fn level_queues(partition: &PartitionId) -> Vec<LevelQueue> {
    (0..PRIORITY_LEVELS).map(|level| LevelQueue::new(partition, level)).collect()
}

impl Names {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// The queue's name on the server.
    pub(crate) fn queue(&self, level_queue: &LevelQueue) -> String {
        let dead = if level_queue.partition.is_dead_letters() { ":dead" } else { "" };
        format!("{}:{}{dead}:{}", self.prefix, level_queue.partition.name(), level_queue.level)
    }

    /// The queue that due messages pass through on their way to a level's queue. Messages that the level
    /// refuses, or that have no level queue, wait here and delay no others.
    pub(crate) fn due_queue(&self, level_queue: &LevelQueue) -> String {
        format!("{}:due", self.queue(level_queue))
    }

    /// The exchange that knows which queues exist: a message whose routing key is a queue's word is returned
    /// if there is no such queue.
    pub(crate) fn known(&self) -> String {
        format!("{}:known", self.prefix)
    }

    /// The routing key, on that exchange, that marks a queue as old enough to survive a crash.
    pub(crate) fn old(queue: &str) -> String {
        format!("old {queue}")
    }

    /// The exclusive queue of the client that is declaring a queue.
    pub(crate) fn declare_lock(queue: &str) -> String {
        format!("{queue}:making")
    }

    /// The queue that drops the messages sent as such questions.
    pub(crate) fn sink(&self) -> String {
        format!("{}:sink", self.prefix)
    }

    /// The exchange that announces new queues.
    pub(crate) fn announcements(&self) -> String {
        format!("{}:news", self.prefix)
    }

    /// The exchange of due messages.
    pub(crate) fn due(&self) -> String {
        format!("{}:due", self.prefix)
    }

    /// The exchange and the queue of due messages whose due queue is missing.
    pub(crate) fn stray(&self) -> String {
        format!("{}:stray", self.prefix)
    }

    /// The exchange of one stage of a delay.
    pub(crate) fn delay_stage(&self, stage: u32) -> String {
        format!("{}:delay:{stage}", self.prefix)
    }

    /// The queue of one digit of a stage.
    pub(crate) fn delay_queue(&self, stage: u32, digit: u32) -> String {
        format!("{}:delay:{stage}:{digit:x}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_lines_share_a_name_and_words_are_read_back() {
        let names = Names::new("aq");
        let mail = PartitionId::new("mail.new").unwrap();
        let level_queues =
            [LevelQueue::new(&mail, 0), LevelQueue::new(&mail, 9), LevelQueue::new(&mail.dead_letters(), 0)];
        let queues: std::collections::HashSet<_> =
            level_queues.iter().map(|level_queue| names.queue(level_queue)).collect();
        assert_eq!(queues.len(), 3);
        assert_eq!(names.queue(&level_queues[2]), "aq:mail.new:dead:0");
        assert!(!queues.contains(&names.due_queue(&level_queues[0])));
        assert_eq!(level_queues[0].dead_letter_queue(), level_queues[2]);
        assert_eq!(LevelQueue::new(&mail.dead_letters(), 9).dead_letter_queue(), level_queues[2]);
        for level_queue in level_queues {
            assert!(!level_queue.routing_word().contains('.'), "{}", level_queue.routing_word());
            assert_eq!(LevelQueue::from_routing_word(&level_queue.routing_word()), Some(level_queue));
        }
        assert_eq!(LevelQueue::from_routing_word("x0:mail"), None);
    }
}
