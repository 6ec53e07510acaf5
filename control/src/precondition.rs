//! What must be there for a change to be made.

/// What must be there for a change to be made. If two clients change the same thing at once, it lets the
/// second one notice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Precondition {
    /// Anything, or nothing.
    #[default]
    Anything,
    /// Nothing of this name.
    Absent,
    /// Something of this name, whatever it is.
    Present,
    /// Something with one of these revisions.
    Revision(Vec<String>),
}

impl Precondition {
    /// Narrows this to what was seen: nothing, or something with this revision. The result holds only as long
    /// as that has not changed. Returns `None` if what was seen is not as expected.
    #[must_use]
    pub fn narrowed_to(&self, seen: Option<&str>) -> Option<Self> {
        let of = |revision: &str| Self::Revision(vec![revision.to_owned()]);
        self.holds(seen.is_some(), seen).then(|| seen.map_or(Self::Absent, of))
    }

    /// Whether the precondition holds. Something that is there and cannot be read has no revision.
    pub(crate) fn holds(&self, is_there: bool, revision: Option<&str>) -> bool {
        match self {
            Self::Anything => true,
            Self::Absent => !is_there,
            Self::Present => is_there,
            Self::Revision(all) => revision.is_some_and(|there| all.iter().any(|one| one == there)),
        }
    }
}

/// What became of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deleted {
    /// It was deleted.
    Done,
    /// There was nothing of this name.
    NotThere,
    /// What is there is not as expected, so it stays.
    NotExpected,
}

impl Deleted {
    pub(crate) const fn of(is_there: bool, is_expected: bool) -> Self {
        match (is_there, is_expected) {
            (_, false) => Self::NotExpected,
            (true, true) => Self::Done,
            (false, true) => Self::NotThere,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_has_to_be_as_expected_and_then_to_stay() {
        let of = |all: &[&str]| Precondition::Revision(all.iter().map(|one| (*one).to_owned()).collect());
        let all = [
            Precondition::Anything,
            Precondition::Absent,
            Precondition::Present,
            of(&["a", "b"]),
            of(&["c"]),
        ];
        let seen = |seen: Option<&str>| all.clone().map(|expected| expected.narrowed_to(seen));
        assert_eq!(seen(None), [Some(Precondition::Absent), Some(Precondition::Absent), None, None, None]);
        assert_eq!(seen(Some("a")), [Some(of(&["a"])), None, Some(of(&["a"])), Some(of(&["a"])), None]);
    }
}
