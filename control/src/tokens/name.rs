//! The names of tokens in the control store.

use anyqueue::control::Key;
use anyqueue::{Error, Result};

/// The prefix of the keys of all tokens.
pub(super) const TOKENS: &str = "token/";

/// The longest name of a token, in bytes.
pub const MAX_TOKEN_NAME_BYTES: usize = 64;

/// A name is part of the text of a token, before the last `_`.
pub(super) fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    (1..=MAX_TOKEN_NAME_BYTES).contains(&name.len()) && name.bytes().all(fits)
}

pub(super) fn key_of(name: &str) -> Result<Key> {
    if !is_name(name) {
        let text = format!(
            "a token's name has 1 to {MAX_TOKEN_NAME_BYTES} of a-z, 0-9, '-' and '.': choose another than {name:?}"
        );
        return Err(Error::invalid(text));
    }
    Key::new(format!("{TOKENS}{name}"))
}

pub(super) fn name_of(key: &Key) -> &str {
    key.as_str().strip_prefix(TOKENS).unwrap_or_else(|| key.as_str())
}
