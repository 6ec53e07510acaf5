//! Tokens, which prove that a lease is held.

use anyqueue::adapter::Token;

/// Returns the token of a lease: the message's row, then the 128 random bits of the claim.
pub(crate) fn token(seq: i64, secret: u128) -> Token {
    Token::from_bytes([&seq.to_be_bytes()[..], &secret.to_be_bytes()].concat())
}
