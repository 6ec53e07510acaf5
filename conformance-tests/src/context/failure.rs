//! The verdict that the contract is broken, with the history of the messages concerned.

use anyqueue::MessageId;

use crate::clause::Clause;
use crate::history::History;
use crate::verdict::{Failure, Stop};

/// Shows the history of the messages in `about`; of all messages if it is empty.
pub(super) fn fail(
    history: &History,
    clause: Clause,
    about: &[MessageId],
    expected: impl Into<String>,
    seen: impl Into<String>,
) -> Stop {
    let history = history.lines(about);
    let (expected, seen) = (expected.into(), seen.into());
    Stop::Fail(Box::new(Failure { clause, expected, seen, history, likely: Vec::new() }))
}
