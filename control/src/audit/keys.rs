//! The names of entries in the control store.

use anyqueue::control::Key;
use anyqueue::{Error, ErrorKind, Result};

/// The prefix of the keys of all entries.
pub(super) const AUDIT: &str = "audit/";

/// Later numbers come first.
pub(super) fn key_of(number: u64) -> Result<Key> {
    Key::new(format!("{AUDIT}{:016x}", u64::MAX - number))
}

pub(super) fn number_of(key: &Key) -> Result<u64> {
    let digits = key.as_str().strip_prefix(AUDIT).filter(|digits| digits.len() == 16);
    let place = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    place.map(|place| u64::MAX - place).ok_or_else(|| unreadable(key))
}

pub(super) fn unreadable(what: impl std::fmt::Display) -> Error {
    let text = format!("the control entry {what} does not belong to the audit trail: delete it");
    Error::new(ErrorKind::Corrupt, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_numbers_come_first_and_are_read_as_they_were_written() {
        let numbers = [u64::MAX, 10_000, 256, 2, 1, 0];
        let keys = numbers.map(|number| key_of(number).unwrap());
        assert!(keys.is_sorted());
        assert_eq!(keys.each_ref().map(|key| number_of(key).unwrap()), numbers);
        for strange in ["audit/", "audit/1", "audit/zzzzzzzzzzzzzzzz", "audit/00000000000000000"] {
            assert!(number_of(&Key::new(strange).unwrap()).is_err(), "{strange}");
        }
    }
}
