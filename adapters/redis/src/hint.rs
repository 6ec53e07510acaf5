//! What waiting pulls are told.

use std::time::Duration;

use anyqueue::PartitionId;

use crate::names;

/// What became of a partition, as far as waiting pulls are concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hint {
    /// So many messages can be pulled.
    pub(crate) ready: usize,
    /// In this time one becomes available by itself.
    pub(crate) due: Option<Duration>,
}

impl Hint {
    pub(crate) fn ready(ready: usize) -> Self {
        Self { ready, due: None }
    }

    pub(crate) fn due(due: Duration) -> Self {
        Self { ready: 0, due: Some(due) }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.ready = self.ready.saturating_add(other.ready);
        self.due = self.due.into_iter().chain(other.due).min();
    }

    /// A time in microseconds as scripts tell it; a negative one means never.
    pub(crate) fn due_us(in_us: i64) -> Self {
        Self { ready: 0, due: u64::try_from(in_us).ok().map(Duration::from_micros) }
    }

    /// Reads what a script published: a partition, how many are ready, when the next is due, and whose call it was.
    pub(crate) fn read(text: &[u8]) -> Option<(PartitionId, Self, &str)> {
        let text = std::str::from_utf8(text).ok()?;
        let (rest, caller) = text.rsplit_once(' ')?;
        let (rest, due_us) = rest.rsplit_once(' ')?;
        let (word, ready) = rest.rsplit_once(' ')?;
        let due = Self::due_us(due_us.parse().ok()?).due;
        Some((names::partition(word)?, Self { ready: ready.parse().ok()?, due }, caller))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_scripts_publish_is_read_and_nonsense_is_not() {
        let mail = PartitionId::new("mail").unwrap();
        assert_eq!(Hint::read(b"l mail 3 -1 me"), Some((mail.clone(), Hint::ready(3), "me")));
        let due = Hint { ready: 0, due: Some(Duration::from_millis(2)) };
        assert_eq!(Hint::read(b"d mail 0 2000 x"), Some((mail.dead_letters(), due, "x")));
        for nonsense in [&b""[..], b"mail", b"x mail 1 1 c", b"l mail one 1 c", b"l m/l 1 1 c", b"\xff 1 1 c"]
        {
            assert_eq!(Hint::read(nonsense), None);
        }
    }
}
