//! The secret that the owner of a token shows.

use std::fmt;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::name::is_name;

/// The prefix of each token, so that searches for leaked secrets find them.
const PREFIX: &str = "aq_";
/// The number of digits of a secret: 128 bits.
const DIGITS: usize = 32;

/// A token: `aq_<name>_<32 hexadecimal digits>`. Only [`text`](Self::text) reveals it.
#[derive(Clone)]
pub struct Secret {
    name: String,
    digits: String,
}

impl Secret {
    pub(crate) fn random(name: &str) -> Self {
        // A random UUID has 122 random bits, of the operating system.
        let mut digest = Sha256::new();
        digest.update(uuid::Uuid::new_v4());
        digest.update(uuid::Uuid::new_v4());
        let mut digits = hex(&digest.finalize());
        digits.truncate(DIGITS);
        Self { name: name.to_owned(), digits }
    }

    /// Reads a token, if the text looks like one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (name, digits) = text.strip_prefix(PREFIX)?.rsplit_once('_')?;
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let fits = is_name(name) && digits.len() == DIGITS && digits.bytes().all(is_digit);
        fits.then(|| Self { name: name.to_owned(), digits: digits.to_owned() })
    }

    /// The name of the token.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text to show to a service, and to nobody else.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{PREFIX}{}_{}", self.name, self.digits)
    }

    /// The digest of the secret, which is what the store keeps.
    pub(super) fn digest(&self) -> String {
        hex(&Sha256::digest(self.text()))
    }

    /// Whether the secret has this digest. The time that takes does not reveal where they differ.
    pub(super) fn has_digest(&self, digest: &str) -> bool {
        self.digest().as_bytes().ct_eq(digest.as_bytes()).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("name", &self.name).finish_non_exhaustive()
    }
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_written_and_says_nothing_of_itself_by_accident() {
        let secret = Secret::random("ci.push-1");
        let read = Secret::parse(&secret.text()).unwrap();
        assert_eq!((read.name(), read.text()), ("ci.push-1", secret.text()));
        assert!(read.has_digest(&secret.digest()));
        assert!(!Secret::random("ci.push-1").has_digest(&secret.digest()), "another secret");
        assert!(!format!("{secret:?}").contains(&secret.digits));
        assert!(!secret.digest().contains(&secret.digits));
    }

    #[test]
    fn what_is_no_token_is_not_taken_for_one() {
        let digits = "0".repeat(DIGITS);
        for text in [
            String::new(),
            "aq_".to_owned(),
            format!("aq_{digits}"),
            format!("aq__{digits}"),
            format!("aq_A_{digits}"),
            format!("aq_a/b_{digits}"),
            format!("aq_a_{digits}0"),
            format!("aq_a_{}", "F".repeat(DIGITS)),
            format!("bq_a_{digits}"),
            format!("aq_{}_{digits}", "a".repeat(65)),
        ] {
            assert!(Secret::parse(&text).is_none(), "{text}");
        }
    }
}
