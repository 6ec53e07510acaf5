//! Time zones by name.

use std::fmt;
use std::str::FromStr;

use anyqueue::{Error, Result};
use jiff::tz::{TimeZone, db};

/// How many similar names the error for an unknown zone lists.
const CLOSE_NAMES: usize = 5;
/// The longest name that is looked up, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// A time zone of the IANA database, such as `Europe/Berlin`, or `UTC`.
///
/// ```
/// use anyqueue_control::cron::Zone;
/// let zone: Zone = "Europe/Berlin".parse()?;
/// assert_eq!(zone.name(), "Europe/Berlin");
/// let unknown = "Europe/Berln".parse::<Zone>().unwrap_err();
/// assert!(unknown.message().contains("Europe/Berlin"));
/// # Ok::<(), anyqueue::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Zone {
    /// Coordinated universal time.
    #[must_use]
    pub const fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// The name of the zone.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    pub(super) fn time_zone(&self) -> &TimeZone {
        &self.0
    }
}

/// # Errors
/// [`InvalidInput`](anyqueue::ErrorKind::InvalidInput) for an unknown name; the error lists similar names.
impl FromStr for Zone {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        if name.eq_ignore_ascii_case("utc") {
            return Ok(Self::utc());
        }
        let known = (name.len() <= MAX_NAME_BYTES).then(|| TimeZone::get(name).ok()).flatten();
        known.filter(|zone| zone.iana_name().is_some()).map(Self).ok_or_else(|| unknown(name))
    }
}

fn unknown(name: &str) -> Error {
    let cut = name.get(..name.floor_char_boundary(MAX_NAME_BYTES)).unwrap_or(name);
    let close = close_names(cut);
    let hint = if close.is_empty() {
        "the system has no time zone database: install tzdata".to_owned()
    } else {
        format!("close names: {}", close.join(", "))
    };
    Error::invalid(format!("there is no time zone `{cut}`; {hint}"))
}

fn close_names(name: &str) -> Vec<String> {
    let wanted = name.to_lowercase();
    let mut names: Vec<_> = db()
        .available()
        .map(|known| (distance(&wanted, &known.as_str().to_lowercase()), known.as_str().to_owned()))
        .collect();
    names.sort();
    names.into_iter().take(CLOSE_NAMES).map(|(_, name)| name).collect()
}

/// The number of edits from one name to the other. A name of which only the last part is written, such as
/// `Berlin`, is as close as that part.
fn distance(wanted: &str, known: &str) -> usize {
    let city = known.rsplit('/').next().unwrap_or(known);
    edits(wanted, known).min(edits(wanted, city).saturating_add(1))
}

/// The Levenshtein distance.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<_> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (above, left) in from.chars().zip(1..) {
        let mut next = vec![left];
        for ((wanted, diagonal), up) in to.iter().zip(&row).zip(row.iter().skip(1)) {
            let beside = next.last().copied().unwrap_or(left);
            let change = diagonal + usize::from(*wanted != above);
            next.push(change.min(up + 1).min(beside + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Zone({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_zone_lists_close_names() {
        for (typo, meant) in [
            ("Europe/Berln", "Europe/Berlin"),
            ("europe/pariss", "Europe/Paris"),
            ("Tokio", "Asia/Tokyo"),
            ("America/NewYork", "America/New_York"),
        ] {
            let error = typo.parse::<Zone>().unwrap_err();
            assert_eq!(error.kind(), anyqueue::ErrorKind::InvalidInput);
            assert!(error.message().contains(meant), "{error}");
        }
        let long = "ä".repeat(1_000_000).parse::<Zone>().unwrap_err();
        assert!(long.message().len() < 400, "{}", long.message().len());
    }

    #[test]
    fn edits_are_counted() {
        assert_eq!((edits("", "abc"), edits("abc", ""), edits("kitten", "sitting")), (3, 3, 3));
    }
}
