//! Hints, in the form in which scripts return and publish them.

use std::time::Duration;

use anyqueue::PartitionId;
use anyqueue::adapter::Hint;

use crate::names;

/// Returns a hint about something due in this many microseconds; negative means never.
pub(crate) fn due_us(in_us: i64) -> Hint {
    Hint { ready: 0, due: u64::try_from(in_us).ok().map(Duration::from_micros) }
}

/// Reads what a script published: a partition, how many messages are ready, when the next one is due, and
/// which handle made the call.
pub(crate) fn read(text: &[u8]) -> Option<(PartitionId, Hint, &str)> {
    let text = std::str::from_utf8(text).ok()?;
    let (rest, caller) = text.rsplit_once(' ')?;
    let (rest, in_us) = rest.rsplit_once(' ')?;
    let (word, ready) = rest.rsplit_once(' ')?;
    let due = due_us(in_us.parse().ok()?).due;
    Some((names::partition(word)?, Hint { ready: ready.parse().ok()?, due }, caller))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_scripts_publish_is_read_and_nonsense_is_not() {
        let mail = PartitionId::new("mail").unwrap();
        assert_eq!(read(b"l mail 3 -1 me"), Some((mail.clone(), Hint::ready(3), "me")));
        let due = Hint::due(Duration::from_millis(2));
        assert_eq!(read(b"d mail 0 2000 x"), Some((mail.dead_letters(), due, "x")));
        for nonsense in [&b""[..], b"mail", b"x mail 1 1 c", b"l mail one 1 c", b"l m/l 1 1 c", b"\xff 1 1 c"]
        {
            assert_eq!(read(nonsense), None);
        }
    }
}
