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

    /// A time in microseconds as scripts tell it; a negative one means never.
    pub(crate) fn due_us(in_us: i64) -> Self {
        Self { ready: 0, due: u64::try_from(in_us).ok().map(Duration::from_micros) }
    }

    /// Reads what a script published: a partition, how many are ready, and when the next is due.
    pub(crate) fn read(text: &[u8]) -> Option<(PartitionId, Self)> {
        let text = std::str::from_utf8(text).ok()?;
        let (rest, due_us) = text.rsplit_once(' ')?;
        let (word, ready) = rest.rsplit_once(' ')?;
        let due = Self::due_us(due_us.parse().ok()?).due;
        Some((names::partition(word)?, Self { ready: ready.parse().ok()?, due }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_scripts_publish_is_read_and_nonsense_is_not() {
        let mail = PartitionId::new("mail").unwrap();
        assert_eq!(Hint::read(b"l mail 3 -1"), Some((mail.clone(), Hint::ready(3))));
        let due = Hint { ready: 0, due: Some(Duration::from_millis(2)) };
        assert_eq!(Hint::read(b"d mail 0 2000"), Some((mail.dead_letters(), due)));
        for nonsense in [&b""[..], b"mail", b"x mail 1 1", b"l mail one 1", b"l m/l 1 1", b"\xff 1 1"] {
            assert_eq!(Hint::read(nonsense), None);
        }
    }
}
