//! The lease token.

use anyqueue::adapter::Token;
use uuid::Uuid;

/// The tokens of one claim: its secret, and what settling must know about the message. Most messages share one token.
pub(crate) struct Tokens {
    secret: Uuid,
    last: Option<(u8, Token)>,
}

impl Tokens {
    pub(crate) fn new(secret: Uuid) -> Self {
        Self { secret, last: None }
    }

    pub(crate) fn of(&mut self, flag: u8) -> Token {
        if let Some((known, token)) = &self.last
            && *known == flag
        {
            return token.clone();
        }
        let mut bytes = self.secret.as_bytes().to_vec();
        bytes.push(flag);
        let token = Token::from_bytes(bytes);
        self.last = Some((flag, token.clone()));
        token
    }
}
