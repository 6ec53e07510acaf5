//! The notes that a handler makes during its run: the last lines, in bounded space.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

use anyqueue::MAX_LOG_BYTES;

/// Kept free for the line that says how many lines are missing.
const ROOM_FOR_DROPPED: usize = 64;
const MAX_LINES_BYTES: usize = MAX_LOG_BYTES - ROOM_FOR_DROPPED;
/// One line cannot displace all others.
const MAX_LINE_BYTES: usize = MAX_LINES_BYTES / 4;

/// The last lines of one attempt.
#[derive(Debug, Default)]
pub(crate) struct TaskLog {
    lines: VecDeque<String>,
    bytes: usize,
    dropped: u64,
}

impl TaskLog {
    /// Adds each line of a text, with the time since the attempt began. The oldest lines make room.
    pub(crate) fn add(&mut self, at: Duration, text: &str) {
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let mut noted = format!("+{}.{:03}s ", at.as_secs(), at.subsec_millis());
            let room = MAX_LINE_BYTES - 1 - noted.len();
            noted.push_str(line.get(..line.floor_char_boundary(room)).unwrap_or(line));
            noted.push('\n');
            self.bytes += noted.len();
            self.lines.push_back(noted);
            while self.bytes > MAX_LINES_BYTES {
                self.bytes -= self.lines.pop_front().map_or(self.bytes, |line| line.len());
                self.dropped += 1;
            }
        }
    }

    /// All lines that are kept, oldest first; `None` if there are none.
    pub(crate) fn text(&self) -> Option<String> {
        if self.lines.is_empty() {
            return None;
        }
        let mut text = String::with_capacity(self.bytes + ROOM_FOR_DROPPED);
        if self.dropped > 0 {
            let _ = writeln!(text, "({} earlier lines are not kept)", self.dropped); // a String takes all
        }
        text.extend(self.lines.iter().map(String::as_str));
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_in_their_order_with_their_times() {
        let mut log = TaskLog::default();
        assert_eq!(log.text(), None);
        log.add(Duration::ZERO, "begun");
        log.add(Duration::from_millis(61_005), "read\n\n  12 rows\r\n");
        assert_eq!(log.text().unwrap(), "+0.000s begun\n+61.005s read\n+61.005s   12 rows\n");
        log.add(Duration::ZERO, " \n");
        assert_eq!(log.lines.len(), 3);
    }

    #[test]
    fn the_last_lines_are_kept_in_bounded_space_and_how_many_are_missing_is_said() {
        let mut log = TaskLog::default();
        for number in 0..10_000 {
            log.add(Duration::MAX, &format!("line {number} é"));
            assert!(log.text().unwrap().len() <= MAX_LOG_BYTES);
        }
        let text = log.text().unwrap();
        assert!(text.ends_with("line 9999 é\n"), "{text}");
        let kept = text.lines().count() - 1;
        assert!(text.starts_with(&format!("({} earlier lines are not kept)\n", 10_000 - kept)), "{text}");
    }

    #[test]
    fn a_huge_line_is_cut_where_a_character_ends_and_leaves_others_their_room() {
        let mut log = TaskLog::default();
        log.add(Duration::ZERO, "first");
        log.add(Duration::ZERO, &"é".repeat(1 << 20));
        let text = log.text().unwrap();
        assert!(text.starts_with("+0.000s first\n") && text.len() <= MAX_LOG_BYTES, "{text}");
        assert_eq!(text.lines().count(), 2);
    }
}
