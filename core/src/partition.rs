//! Names of queues within a storage.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};

/// The suffix of a name of dead letters where it is displayed. No valid name ends with it.
pub(crate) const DEAD_LETTERS_MARK: &str = " (dead letters)";

/// A named queue within a storage, or its dead letters.
///
/// A valid name is 1 to [`MAX_NAME_BYTES`](Self::MAX_NAME_BYTES) bytes of `A-Z a-z 0-9 . _ -`,
/// case-sensitive. Dead letters are marked by a flag, not by a suffix, so no name can collide with them.
///
/// ```
/// use anyqueue::PartitionId;
/// let mail = PartitionId::new("mail")?;
/// assert!(mail.dead_letters().is_dead_letters());
/// assert!(PartitionId::new("no spaces").is_err());
/// # Ok::<(), anyqueue::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionId {
    name: Arc<str>,
    dead: bool,
}

impl PartitionId {
    /// The maximum length of a name, in bytes.
    pub const MAX_NAME_BYTES: usize = 64;

    /// Creates the id of the partition with this name.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the name is empty, too long, or contains any other
    /// character.
    pub fn new(name: &str) -> Result<Self> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if name.is_empty() || name.len() > Self::MAX_NAME_BYTES || !name.chars().all(allowed) {
            let shown: String = name.chars().take(Self::MAX_NAME_BYTES).collect();
            return Err(Error::invalid(format!(
                "{shown:?} ({} bytes) is not a partition name: use 1 to {} bytes of A-Z a-z 0-9 . _ -",
                name.len(),
                Self::MAX_NAME_BYTES
            )));
        }
        Ok(Self { name: name.into(), dead: false })
    }

    /// Returns the name, without the mark of dead letters.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether these are the dead letters of the partition with that name.
    pub fn is_dead_letters(&self) -> bool {
        self.dead
    }

    /// Returns the dead letters of this partition. Dead letters are returned unchanged.
    #[must_use]
    pub fn dead_letters(&self) -> Self {
        Self { name: self.name.clone(), dead: true }
    }

    /// Returns the partition that these dead letters belong to. A live partition is returned unchanged.
    #[must_use]
    pub fn live(&self) -> Self {
        Self { name: self.name.clone(), dead: false }
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.dead { f.write_str(DEAD_LETTERS_MARK) } else { Ok(()) }
    }
}

impl fmt::Debug for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartitionId({self})")
    }
}

impl std::str::FromStr for PartitionId {
    type Err = Error;
    fn from_str(name: &str) -> Result<Self> {
        Self::new(name)
    }
}

/// Anything that can name a partition in a call of [`Queue`](crate::Queue): a [`PartitionId`], a reference to
/// one, or a string, which is then checked. This trait is sealed.
pub trait IntoPartitionId: sealed::Sealed {
    /// Checks the name and converts it.
    ///
    /// # Errors
    /// As for [`PartitionId::new`].
    fn into_partition_id(self) -> Result<PartitionId>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::PartitionId {}
    impl Sealed for &super::PartitionId {}
    impl Sealed for &str {}
    impl Sealed for &String {}
    impl Sealed for String {}
}

impl IntoPartitionId for PartitionId {
    fn into_partition_id(self) -> Result<PartitionId> {
        Ok(self)
    }
}
impl IntoPartitionId for &PartitionId {
    fn into_partition_id(self) -> Result<PartitionId> {
        Ok(self.clone())
    }
}
impl IntoPartitionId for &str {
    fn into_partition_id(self) -> Result<PartitionId> {
        PartitionId::new(self)
    }
}
impl IntoPartitionId for &String {
    fn into_partition_id(self) -> Result<PartitionId> {
        PartitionId::new(self)
    }
}
impl IntoPartitionId for String {
    fn into_partition_id(self) -> Result<PartitionId> {
        PartitionId::new(&self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_are_refused_with_what_is_allowed() {
        let long = "x".repeat(65);
        for name in ["", " ", "a b", "a/b", "a\0b", "ü", "a'b", "../x", "a:b", "{a}", long.as_str()] {
            let error = PartitionId::new(name).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::InvalidInput, "{name:?}");
            assert!(error.to_string().contains("A-Z a-z 0-9"), "{error}");
        }
        assert!(PartitionId::new(&"x".repeat(64)).is_ok());
    }

    #[test]
    fn dead_letters_differ_from_every_live_name() {
        let mail = PartitionId::new("mail").unwrap();
        assert_ne!(mail, mail.dead_letters());
        assert_eq!(mail.dead_letters().dead_letters(), mail.dead_letters());
        assert_eq!(mail.dead_letters().live(), mail);
    }
}
