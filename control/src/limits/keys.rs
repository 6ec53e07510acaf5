//! The names of limits in the control store.

use anyqueue::control::Key;
use anyqueue::{Error, Result};

/// The prefix of the keys of all limits.
pub(super) const LIMITS: &str = "limit/";

/// The prefix of the keys of all places, of limits that depend on the message.
pub(super) const PLACES: &str = "limit-key/";

/// How many limits one store holds at most: each worker looks through all of them with each beat.
pub const MAX_LIMITS: usize = 1_000;

pub(super) fn key_of(name: &str) -> Result<Key> {
    let most = anyqueue::MAX_KEY_BYTES;
    if name.is_empty() || name.len() > most {
        return Err(Error::invalid(format!("a limit's name of {} bytes: give it 1 to {most}", name.len())));
    }
    Key::new(format!("{LIMITS}{name}"))
}

pub(super) fn name_of(key: &Key) -> &str {
    key.as_str().strip_prefix(LIMITS).unwrap_or_else(|| key.as_str())
}
