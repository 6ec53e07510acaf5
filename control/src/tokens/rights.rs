//! What a token may do, and with which queues.

use std::fmt;
use std::str::FromStr;

use anyqueue::{Error, PartitionId, Result};
use serde::{Deserialize, Serialize};

/// The largest number of patterns of one token.
pub const MAX_PATTERNS: usize = 64;
/// The longest pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 256;

/// A kind of action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Right {
    /// Push messages.
    Push,
    /// Pull, settle and extend.
    Work,
    /// Look at queues and tasks, but not at their contents.
    Read,
    /// See the contents of messages and the results of tasks.
    Payloads,
    /// Pause, retry, cancel and delete; change schedules and limits.
    Manage,
    /// Give rights to others. Includes all other rights.
    Admin,
}

impl Right {
    /// All rights.
    pub const ALL: [Self; 6] =
        [Self::Push, Self::Work, Self::Read, Self::Payloads, Self::Manage, Self::Admin];

    /// The name of the right.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Work => "work",
            Self::Read => "read",
            Self::Payloads => "payloads",
            Self::Manage => "manage",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Right {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|right| right.as_str() == name);
        let all = || Self::ALL.map(Self::as_str).join(", ");
        found.ok_or_else(|| Error::invalid(format!("there is no right {name:?}: use some of {}", all())))
    }
}

/// Rights for all queues whose names match one of the patterns. A pattern is a name, or the beginning of
/// names with a `*` at its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Rights {
    /// What may be done.
    pub rights: Vec<Right>,
    /// The patterns of the queues for which it may be done.
    pub partitions: Vec<String>,
}

impl Rights {
    /// Makes rights for these queues.
    #[must_use]
    pub fn new(
        rights: impl IntoIterator<Item = Right>,
        partitions: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let mut rights: Vec<_> = rights.into_iter().collect();
        rights.sort_unstable();
        rights.dedup();
        Self { rights, partitions: partitions.into_iter().map(Into::into).collect() }
    }

    /// The rights for everything.
    #[must_use]
    pub fn everything() -> Self {
        Self::new([Right::Admin], ["*"])
    }

    /// Returns whether this may be done with some queue.
    #[must_use]
    pub fn has(&self, right: Right) -> bool {
        self.rights.contains(&right) || self.rights.contains(&Right::Admin)
    }

    /// Returns whether this queue is covered.
    #[must_use]
    pub fn covers(&self, partition: &str) -> bool {
        self.partitions.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(start) => partition.starts_with(start),
            None => partition == pattern,
        })
    }

    /// Returns whether all queues are covered, including those that do not exist yet.
    #[must_use]
    pub fn covers_all(&self) -> bool {
        self.partitions.iter().any(|pattern| pattern == "*")
    }

    /// Checks whether the rights make sense.
    ///
    /// # Errors
    /// [`InvalidInput`](anyqueue::ErrorKind::InvalidInput) if there are no rights or patterns, or a pattern
    /// is bad.
    pub fn check(&self) -> Result<()> {
        if self.rights.is_empty() {
            return Err(Error::invalid(
                "a token without rights: give it one of push, work, read, payloads, manage, admin",
            ));
        }
        if self.partitions.is_empty() || self.partitions.len() > MAX_PATTERNS {
            let text = format!("{} patterns of queues: give 1 to {MAX_PATTERNS}", self.partitions.len());
            return Err(Error::invalid(text));
        }
        if self.rights.contains(&Right::Admin) && !self.covers_all() {
            return Err(Error::invalid("the right admin is for all queues: use the pattern *"));
        }
        self.partitions.iter().try_for_each(|pattern| check(pattern))
    }
}

fn check(pattern: &str) -> Result<()> {
    let start = pattern.strip_suffix('*').unwrap_or(pattern);
    let fits = pattern.len() <= MAX_PATTERN_BYTES && !start.contains('*');
    let is_name = pattern == "*" || PartitionId::new(start).is_ok();
    if fits && is_name {
        return Ok(());
    }
    let text = format!(
        "{pattern:?} is not a pattern: write the name of a queue, or the beginning of names followed by a *"
    );
    Err(Error::invalid(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_covers_its_name_or_what_begins_with_it() {
        let rights = Rights::new([Right::Read], ["mail", "eu.*"]);
        for (name, covers) in [
            ("mail", true),
            ("mail2", false),
            ("mai", false),
            ("eu.", true),
            ("eu.west", true),
            ("eu", false),
            ("*", false),
            ("", false),
        ] {
            assert_eq!(rights.covers(name), covers, "{name:?}");
        }
        assert!(!rights.covers_all() && Rights::everything().covers_all());
    }

    #[test]
    fn admin_includes_all_rights_and_no_other_right_includes_another() {
        for right in Right::ALL {
            assert!(Rights::everything().has(right));
            let only = Rights::new([right], ["*"]);
            let others = Right::ALL.into_iter().filter(|other| *other != right);
            assert!(others.clone().all(|other| right == Right::Admin || !only.has(other)), "{right}");
            assert_eq!(right.as_str().parse::<Right>().unwrap(), right);
        }
        assert!("root".parse::<Right>().unwrap_err().to_string().contains("payloads"));
    }

    #[test]
    fn rights_that_make_no_sense_are_refused() {
        for (rights, said) in [
            (Rights::new([], ["*"]), "without rights"),
            (Rights::new([Right::Read], [""; 0]), "give 1 to"),
            (Rights::new([Right::Read], ["a"; MAX_PATTERNS + 1]), "give 1 to"),
            (Rights::new([Right::Admin], ["mail"]), "pattern *"),
            (Rights::new([Right::Read], ["a*b"]), "not a pattern"),
            (Rights::new([Right::Read], ["**"]), "not a pattern"),
            (Rights::new([Right::Read], [""]), "not a pattern"),
        ] {
            let refused = rights.check().unwrap_err();
            assert!(refused.to_string().contains(said), "{refused}");
        }
        Rights::new([Right::Read, Right::Push], ["mail", "eu.*", "*"]).check().unwrap();
    }
}
