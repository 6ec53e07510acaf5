//! What an invariant says about a history.

use crate::clause::Clause;
/// Nothing, or what is wrong.
pub(super) type Verdict = Result<(), Box<Broken>>;

/// A violation, before it has the invariant's name.
pub(super) struct Broken {
    pub(super) clause: Clause,
    pub(super) about: Vec<usize>,
    pub(super) expected: String,
    pub(super) seen: String,
}

/// Succeeds unless `broken`; the texts are only created if it is.
pub(super) fn refute(
    broken: bool,
    clause: Clause,
    about: &[usize],
    texts: impl FnOnce() -> (String, String),
) -> Verdict {
    if !broken {
        return Ok(());
    }
    let (expected, seen) = texts();
    Err(Box::new(Broken { clause, about: about.to_vec(), expected, seen }))
}
