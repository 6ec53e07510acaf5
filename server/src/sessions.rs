//! The sessions of people who logged in with a token.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hmac::Mac as _;

use crate::access::Access;
use crate::seal::mac_of;

/// The cookie of a session.
pub(crate) const COOKIE: &str = "anyqueue_session";
/// How long a session lasts.
const LASTS: Duration = Duration::from_hours(12);
/// The most sessions at once: beyond that the oldest ends.
const MAX_SESSIONS: usize = 1000;

/// The hash of a session's name under a key of this process, so that the time of a comparison reveals nothing
/// about the name.
type Hash = [u8; 32];

/// Who has logged in, and with which token.
pub(crate) struct Sessions {
    key: [u8; 16],
    entered: Mutex<HashMap<Hash, (Instant, Arc<Access>)>>,
}

impl Sessions {
    pub(crate) fn new() -> Self {
        Self { key: *uuid::Uuid::new_v4().as_bytes(), entered: Mutex::default() }
    }

    /// Starts a session for a person who has shown a token, and returns its name.
    pub(crate) fn enter(&self, access: Arc<Access>) -> String {
        let (name, now) = (uuid::Uuid::new_v4().simple().to_string(), Instant::now());
        let mut entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
        entered.retain(|_, (since, _)| since.elapsed() < LASTS);
        if entered.len() >= MAX_SESSIONS
            && let Some(oldest) = entered.iter().min_by_key(|(_, (since, _))| *since).map(|(hash, _)| *hash)
        {
            entered.remove(&oldest);
        }
        entered.insert(hash(self.key, &name), (now, access));
        name
    }

    /// Whose session it is, if it still lasts. It does not check whether the token is still valid.
    pub(crate) fn of(&self, name: &str) -> Option<Arc<Access>> {
        let entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, access) = entered.get(&hash(self.key, name))?;
        (since.elapsed() < LASTS).then(|| access.clone())
    }
}

fn hash(key: [u8; 16], text: &str) -> Hash {
    let mut mac = mac_of(&key);
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Who;

    #[test]
    fn only_so_many_sessions_last_and_none_that_nobody_entered() {
        let sessions = Sessions::new();
        let access = Arc::new(Access::everything(Who::Fixed));
        let first = sessions.enter(access.clone());
        assert!(sessions.of(&first).is_some() && sessions.of("").is_none() && sessions.of("x").is_none());
        for _ in 0..MAX_SESSIONS {
            sessions.enter(access.clone());
        }
        assert!(sessions.of(&first).is_none(), "the oldest made room");
    }
}
