//! The lease token: the channel, and the delivery tag on it.

use anyqueue::adapter::Token;
use uuid::Uuid;

const BYTES: usize = 24;

/// A delivery on a channel. Each channel has a random id, because delivery tags are numbered from 1 on every
/// channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) channel_id: Uuid,
    pub(crate) delivery_tag: u64,
}

impl Tag {
    pub(crate) fn token(self) -> Token {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend_from_slice(self.channel_id.as_bytes());
        bytes.extend_from_slice(&self.delivery_tag.to_be_bytes());
        Token::from_bytes(bytes)
    }

    /// Reads a token, if it is one of this backend's.
    pub(crate) fn of(token: &Token) -> Option<Self> {
        let (channel_id, delivery_tag) = token.as_bytes().split_first_chunk::<16>()?;
        Some(Self {
            channel_id: Uuid::from_bytes(*channel_id),
            delivery_tag: u64::from_be_bytes(delivery_tag.try_into().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_read_back_and_nothing_else_is_one() {
        let tag = Tag { channel_id: Uuid::new_v4(), delivery_tag: 7 };
        assert_eq!(Tag::of(&tag.token()), Some(tag));
        assert_eq!(Tag::of(&Token::random()), None);
        assert_eq!(Tag::of(&Token::from_bytes(vec![0; BYTES + 1])), None);
    }
}
