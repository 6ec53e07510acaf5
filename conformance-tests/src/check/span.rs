//! The time from the beginning of a call to its end.

use std::time::Duration;

use crate::history::Call;

/// A time that never comes.
pub(crate) const NEVER: Duration = Duration::MAX;

/// The time from the beginning of a call to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: Duration,
    pub(crate) to: Duration,
}

impl Span {
    pub(super) fn before(self, other: Self) -> bool {
        self.to <= other.from
    }

    pub(super) fn later(self, by: Duration) -> Self {
        Self { from: self.from.saturating_add(by), to: self.to.saturating_add(by) }
    }
}

impl Call {
    pub(super) fn span(&self) -> Span {
        Span { from: self.invoked, to: self.returned.unwrap_or(NEVER) }
    }

    /// Returns the client: a process's next instance is another client.
    pub(super) fn client(&self) -> (&str, u32) {
        (&self.process, self.instance)
    }
}
