//! What things are called on the server.

use anyqueue::PartitionId;

use crate::limits::PRIORITY_LEVELS;

/// The names that belong to one prefix.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    prefix: String,
}

/// One level of one partition: the server has a queue for each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Line {
    pub(crate) partition: PartitionId,
    pub(crate) level: u8,
}

impl Line {
    pub(crate) fn new(partition: &PartitionId, level: u8) -> Self {
        Self { partition: partition.clone(), level }
    }

    /// No line of its own, but known as soon as the partition has one above level 0.
    pub(crate) fn more(partition: &PartitionId) -> Self {
        Self::new(partition, u8::MAX)
    }

    /// Where the server puts what it will not deliver from here any more: the dead letters, and from one level of those the next.
    pub(crate) fn dead_line(&self) -> Self {
        let level =
            if self.partition.is_dead_letters() { (self.level + 1) % PRIORITY_LEVELS } else { self.level };
        Self { partition: self.partition.dead_letters(), level }
    }

    /// The line as one word of a routing key. Words are parted by dots, which names can hold and slashes not.
    pub(crate) fn word(&self) -> String {
        let kind = if self.partition.is_dead_letters() { 'd' } else { 'l' };
        format!("{kind}{}:{}", self.level, self.partition.name().replace('.', "/"))
    }

    /// The line of this word.
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        let (head, name) = word.split_once(':')?;
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

/// All lines that a partition can have.
pub(crate) fn lines(partition: &PartitionId) -> Vec<Line> {
    (0..PRIORITY_LEVELS).map(|level| Line::new(partition, level)).collect()
}

impl Names {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// The queue of a line.
    pub(crate) fn queue(&self, line: &Line) -> String {
        let dead = if line.partition.is_dead_letters() { ":dead" } else { "" };
        format!("{}:{}{dead}:{}", self.prefix, line.partition.name(), line.level)
    }

    /// Where what is due for a line waits until the line takes it: what one refuses, or has no queue for, is in no other's way.
    pub(crate) fn landing(&self, line: &Line) -> String {
        format!("{}:due", self.queue(line))
    }

    /// The exchange that knows which lines there are: a message to a line's word is returned if there is none.
    pub(crate) fn known(&self) -> String {
        format!("{}:known", self.prefix)
    }

    /// What a queue is asked for there once it is old enough for the server to remember it.
    pub(crate) fn old(queue: &str) -> String {
        format!("old {queue}")
    }

    /// Who has declared this is making the queue.
    pub(crate) fn turn(queue: &str) -> String {
        format!("{queue}:making")
    }

    /// The queue that swallows what is asked there.
    pub(crate) fn sink(&self) -> String {
        format!("{}:sink", self.prefix)
    }

    /// The exchange on which new lines are announced.
    pub(crate) fn news(&self) -> String {
        format!("{}:news", self.prefix)
    }

    /// The exchange that hands over what is due.
    pub(crate) fn due(&self) -> String {
        format!("{}:due", self.prefix)
    }

    /// The exchange and the queue of what is due for a line that has no landing any more.
    pub(crate) fn stray(&self) -> String {
        format!("{}:stray", self.prefix)
    }

    /// The exchange of one rung of the ladder of delays.
    pub(crate) fn rung(&self, rung: u32) -> String {
        format!("{}:delay:{rung}", self.prefix)
    }

    /// The queue of one digit of a rung, where messages rest on their way down.
    pub(crate) fn rest(&self, rung: u32, digit: u32) -> String {
        format!("{}:delay:{rung}:{digit:x}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_lines_share_a_name_and_words_are_read_back() {
        let names = Names::new("aq");
        let mail = PartitionId::new("mail.new").unwrap();
        let lines = [Line::new(&mail, 0), Line::new(&mail, 9), Line::new(&mail.dead_letters(), 0)];
        let queues: std::collections::HashSet<_> = lines.iter().map(|line| names.queue(line)).collect();
        assert_eq!(queues.len(), 3);
        assert_eq!(names.queue(&lines[2]), "aq:mail.new:dead:0");
        assert!(!queues.contains(&names.landing(&lines[0])));
        assert_eq!(lines[0].dead_line(), lines[2]);
        assert_eq!(Line::new(&mail.dead_letters(), 9).dead_line(), lines[2]);
        for line in lines {
            assert!(!line.word().contains('.'), "{}", line.word());
            assert_eq!(Line::of_word(&line.word()), Some(line));
        }
        assert_eq!(Line::of_word("x0:mail"), None);
    }
}
