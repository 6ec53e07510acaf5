//! The lease token, and what it proves.

use anyqueue::MessageId;
use anyqueue::adapter::{Lease, Token};
use uuid::Uuid;

pub(crate) type Secret = [u8; 16];

/// The proof of a lease: the message, the 128 random bits of the claim, and the flag of the message. A token
/// of another form proves nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Proof {
    pub(crate) id: MessageId,
    pub(crate) secret: Secret,
    pub(crate) flag: u8,
}

impl Proof {
    pub(crate) fn of(lease: &Lease) -> Option<Self> {
        let (secret, rest) = lease.token.as_bytes().split_first_chunk()?;
        let [flag] = *rest else { return None };
        Some(Self { id: lease.id, secret: *secret, flag })
    }

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = [&self.id.as_bytes()[..], &self.secret].concat();
        bytes.push(self.flag);
        bytes
    }
}

/// Creates the tokens of one claim: its secret, and what a settlement must know about the message. Most
/// messages share one token.
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
