//! Tokens, and the sessions of people who entered with one.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hmac::Mac as _;

use crate::seal::mac_of;

/// The shortest token: what is shorter can be guessed.
pub(crate) const MIN_TOKEN_BYTES: usize = 16;
/// The cookie of a session.
pub(crate) const COOKIE: &str = "anyqueue_session";
/// How long a session lasts.
const LASTS: Duration = Duration::from_hours(12);
/// The most sessions at once: beyond that the oldest ends.
const MAX_SESSIONS: usize = 1000;

/// A token or the name of a session under a key of this process, so that how long a comparison takes says nothing about it.
type Hash = [u8; 32];

/// Who may ask, if not everybody.
pub(crate) struct Sessions {
    tokens: Vec<Hash>,
    key: [u8; 16],
    entered: Mutex<HashMap<Hash, Instant>>,
}

impl Sessions {
    pub(crate) fn new(tokens: &[String]) -> Self {
        let key = *uuid::Uuid::new_v4().as_bytes();
        let tokens = tokens.iter().map(|token| hash(key, token)).collect();
        Self { tokens, key, entered: Mutex::default() }
    }

    /// Whether everybody may ask.
    pub(crate) fn is_open(&self) -> bool {
        self.tokens.is_empty()
    }

    pub(crate) fn knows(&self, token: &str) -> bool {
        let hash = hash(self.key, token);
        self.tokens.iter().filter(|one| **one == hash).count() > 0
    }

    /// A new session for whoever has a token.
    pub(crate) fn enter(&self, token: &str) -> Option<String> {
        if !self.knows(token) {
            return None;
        }
        let (name, now) = (uuid::Uuid::new_v4().simple().to_string(), Instant::now());
        let mut entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
        entered.retain(|_, since| since.elapsed() < LASTS);
        if entered.len() >= MAX_SESSIONS
            && let Some(oldest) = entered.iter().min_by_key(|(_, since)| **since).map(|(hash, _)| *hash)
        {
            entered.remove(&oldest);
        }
        entered.insert(hash(self.key, &name), now);
        Some(name)
    }

    /// Whether a session lasts.
    pub(crate) fn lasts(&self, name: &str) -> bool {
        let entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
        entered.get(&hash(self.key, name)).is_some_and(|since| since.elapsed() < LASTS)
    }
}

fn hash(key: [u8; 16], text: &str) -> Hash {
    let mut mac = mac_of(&key);
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_a_token_opens_a_session_and_only_so_many_last() {
        let sessions = Sessions::new(&["a-token-of-16-bytes".to_owned()]);
        assert!(sessions.enter("another").is_none());
        let first = sessions.enter("a-token-of-16-bytes").unwrap();
        assert!(sessions.lasts(&first) && !sessions.lasts("") && !sessions.lasts("x"));
        for _ in 0..MAX_SESSIONS {
            sessions.enter("a-token-of-16-bytes").unwrap();
        }
        assert!(!sessions.lasts(&first), "the oldest made room");
    }
}
