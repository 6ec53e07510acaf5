//! What proves that a lease is held.

use anyqueue::adapter::Token;

/// A lease's proof: where the message is, then the 128 random bits of the claim.
pub(crate) fn token(seq: i64, secret: u128) -> Token {
    Token::from_bytes([&seq.to_be_bytes()[..], &secret.to_be_bytes()].concat())
}
