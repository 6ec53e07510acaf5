//! The fingerprint of a certificate.

use std::fmt;
use std::str::FromStr;

use anyqueue::{Error, Result};
use sha2::{Digest as _, Sha256};

/// The length of a SHA-256.
const BYTES: usize = 32;

/// The SHA-256 of a certificate in DER, as `openssl x509 -noout -fingerprint -sha256` prints it. It
/// identifies this certificate, and no other one of the same name. It is not a secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; BYTES]);

impl Fingerprint {
    /// Returns the fingerprint of a certificate in DER.
    #[must_use]
    pub fn of(der: &[u8]) -> Self {
        Self(Sha256::digest(der).into())
    }

    /// The bytes of the fingerprint.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; BYTES] {
        &self.0
    }
}

/// Writes 64 hexadecimal digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// Reads 64 hexadecimal digits, in lower or upper case, with or without colons between the bytes.
impl FromStr for Fingerprint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Error::invalid(
                "this is not the SHA-256 of a certificate: write its 64 hexadecimal digits, with or without colons",
            )
        };
        let digits: Vec<u8> = match text.contains(':') {
            true if text.split(':').all(|pair| pair.len() == 2) => {
                text.bytes().filter(|byte| *byte != b':').collect()
            }
            true => return Err(bad()),
            false => text.bytes().collect(),
        };
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let bytes: Option<Vec<u8>> = digits
            .chunks(2)
            .map(|pair| match pair {
                [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
                _ => None,
            })
            .collect();
        bytes.and_then(|bytes| bytes.try_into().ok()).map(Self).ok_or_else(bad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of nothing, from the standard's test vectors.
    const NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn it_is_read_as_it_and_others_write_it() {
        let nothing = Fingerprint::of(b"");
        assert_eq!(nothing.to_string(), NOTHING);
        assert_eq!(NOTHING.parse::<Fingerprint>().unwrap(), nothing);
        let pairs = NOTHING.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        let by_openssl = pairs.collect::<Vec<_>>().join(":").to_uppercase();
        assert_eq!(by_openssl.parse::<Fingerprint>().unwrap(), nothing);
    }

    #[test]
    fn what_is_none_is_not_taken_for_one() {
        let (short, long) = (&NOTHING[2..], format!("{NOTHING}00"));
        let (strange, colons) = (NOTHING.replacen('e', "g", 1), NOTHING.replacen("b0", "b:0", 1));
        for text in ["", ":", short, &NOTHING[1..], &long, &strange, &colons, "é"] {
            let refused = text.parse::<Fingerprint>().unwrap_err();
            assert!(refused.to_string().contains("64 hexadecimal digits"), "{text}: {refused}");
        }
    }
}
