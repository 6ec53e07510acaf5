//! Which tokens are valid: those that the service was started with, and those in the store.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyqueue::control::ControlStore;
use anyqueue_control::tokens::{Fingerprint, TokenInfo, Tokens};
use axum::http::StatusCode;
use hmac::Mac as _;

use crate::access::{Access, Who};
use crate::problem::{Answer, Problem};
use crate::seal::mac_of;

/// The shortest token that a service is started with: a shorter one can be guessed. Below: the longest that
/// is looked at.
pub(crate) const MIN_TOKEN_BYTES: usize = 16;
const MAX_TOKEN_BYTES: usize = 1024;
/// How long an answer of the store is reused: a deleted token stays valid for as long.
const KEPT: Duration = Duration::from_secs(1);
/// The most answers that are kept.
const MAX_KEPT: usize = 1024;
/// How long the store may take to answer.
const DEADLINE: Duration = Duration::from_secs(3);

/// The hash of a question under a key of this process, so that the time of a comparison reveals nothing about
/// the token.
type Hash = [u8; 32];

/// What the store is asked. The kind goes into the hash: otherwise the answer to one question could be had by
/// sending the words of another as a token.
#[derive(Clone, Copy)]
enum Question<'a> {
    /// Who has this token.
    Token(&'a str),
    /// Whether this token, with this digest, is still valid.
    Still(&'a str, &'a str),
    /// Which token this certificate stands for.
    Certificate(&'a Fingerprint),
}

impl Question<'_> {
    fn hash(self, key: [u8; 16]) -> Hash {
        let (kind, text, more): (u8, &[u8], &[u8]) = match self {
            Self::Token(token) => (0, token.as_bytes(), &[]),
            // All digests have the same length: no other name and digest give the same text.
            Self::Still(name, digest) => (1, digest.as_bytes(), name.as_bytes()),
            Self::Certificate(certificate) => (2, certificate.as_bytes(), &[]),
        };
        let mut mac = mac_of(&key);
        mac.update(&[kind]);
        mac.update(text);
        mac.update(more);
        mac.finalize().into_bytes().into()
    }
}

/// Who was found; `None` for what is not valid.
type Found = Option<Arc<Access>>;
/// The answers, and when the store was asked.
type Known = HashMap<Hash, (Instant, Found)>;

/// Decides who is let in.
pub(crate) struct Keys {
    key: [u8; 16],
    fixed: Vec<Hash>,
    stored: Option<Tokens>,
    /// Whether tokens are required. Once they are, they are until the process ends: deleting the last one
    /// opens nothing.
    closed: AtomicBool,
    known: Mutex<Known>,
    /// Who asks where no token is required, and who has a token that the service was started with.
    anybody: Arc<Access>,
    operator: Arc<Access>,
}

impl Keys {
    /// Checks whether there are any tokens.
    pub(crate) async fn new(
        fixed: &[String],
        store: Option<&ControlStore>,
        required: bool,
    ) -> anyqueue::Result<Self> {
        let key = *uuid::Uuid::new_v4().as_bytes();
        let stored = store.map(|store| Tokens::new(store.clone()));
        let any_stored = match &stored {
            Some(tokens) if !required && fixed.is_empty() => {
                let all = tokens.list().await?;
                !all.tokens.is_empty() || !all.unreadable.is_empty()
            }
            _ => false,
        };
        Ok(Self {
            key,
            fixed: fixed.iter().map(|token| Question::Token(token).hash(key)).collect(),
            stored,
            closed: AtomicBool::new(required || !fixed.is_empty() || any_stored),
            known: Mutex::default(),
            anybody: Arc::new(Access::everything(Who::Anybody)),
            operator: Arc::new(Access::everything(Who::Fixed)),
        })
    }

    /// Whether everybody may make requests.
    pub(crate) fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Acquire)
    }

    /// Requires tokens from now on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Who asks where everybody may.
    pub(crate) fn anybody(&self) -> Arc<Access> {
        self.anybody.clone()
    }

    /// Who has this token; `None` if it is not valid.
    pub(crate) async fn of(&self, token: &str) -> Answer<Found> {
        if token.len() > MAX_TOKEN_BYTES {
            return Ok(None);
        }
        let hash = Question::Token(token).hash(self.key);
        if self.fixed.iter().filter(|one| **one == hash).count() > 0 {
            return Ok(Some(self.operator.clone()));
        }
        let Some(tokens) = &self.stored else { return Ok(None) };
        self.asked(hash, tokens.verify(token), Access::of).await
    }

    /// Who has this certificate; `None` if it stands for no valid token.
    pub(crate) async fn of_certificate(&self, certificate: &Fingerprint) -> Answer<Found> {
        let Some(tokens) = &self.stored else { return Ok(None) };
        let hash = Question::Certificate(certificate).hash(self.key);
        let by_it = |token| Access::of(token).by_certificate(*certificate);
        self.asked(hash, tokens.of_certificate(certificate), by_it).await
    }

    /// Whether a caller that was let in still would be: the token may have been deleted or have expired, or
    /// the certificate may no longer stand for it.
    pub(crate) async fn still(&self, access: &Arc<Access>) -> Answer<bool> {
        let token = match &access.who {
            Who::Token(token) => token,
            Who::Anybody => return Ok(self.is_open()),
            Who::Fixed => return Ok(true),
        };
        if let Some(certificate) = &access.certificate {
            let now = self.of_certificate(certificate).await?;
            return Ok(now.is_some_and(|now| now.who == access.who));
        }
        let Some(tokens) = &self.stored else { return Ok(false) };
        let hash = Question::Still(&token.name, token.fingerprint()).hash(self.key);
        Ok(self.asked(hash, tokens.still(token), Access::of).await?.is_some())
    }

    async fn asked(
        &self,
        hash: Hash,
        ask: impl Future<Output = anyqueue::Result<Option<TokenInfo>>>,
        access: impl FnOnce(TokenInfo) -> Access,
    ) -> Answer<Found> {
        if let Some((at, found)) = self.lock().get(&hash)
            && at.elapsed() < KEPT
        {
            return Ok(found.clone());
        }
        // What was true before the store was asked may have changed meanwhile.
        let asked_at = Instant::now();
        let found = match tokio::time::timeout(DEADLINE, ask).await {
            Ok(Ok(found)) => found.map(|token| Arc::new(access(token))),
            Ok(Err(error)) => {
                tracing::warn!(%error, "a token could not be looked up");
                return Err(away());
            }
            Err(_) => return Err(away()),
        };
        let mut known = self.lock();
        if known.len() >= MAX_KEPT {
            make_room(&mut known);
        }
        known.insert(hash, (asked_at, found.clone()));
        Ok(found)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets answers that are too old. If there are none, forgets one answer: the oldest about an invalid
/// token, or else the oldest of all. So trying many tokens pushes out no valid one.
fn make_room(known: &mut Known) {
    known.retain(|_, (at, _)| at.elapsed() < KEPT);
    if known.len() >= MAX_KEPT
        && let Some(first) =
            known.iter().min_by_key(|(_, (at, found))| (found.is_some(), *at)).map(|(hash, _)| *hash)
    {
        known.remove(&first);
    }
}

/// In doubt nobody is let in.
fn away() -> Problem {
    let text = "the tokens cannot be looked up now: try again";
    Problem { retry: "safe", ..Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", text) }
}

#[cfg(test)]
mod tests {
    use anyqueue::Queue;
    use anyqueue_control::tokens::{Right, Rights};
    use anyqueue_memory::MemoryQueue;

    use super::*;

    /// A time so long ago that its answer is kept no longer.
    fn long_ago() -> Instant {
        Instant::now().checked_sub(2 * KEPT).unwrap()
    }

    #[test]
    fn what_is_old_goes_first_then_what_does_not_count_then_what_was_asked_first() {
        let counts = || Some(Arc::new(Access::everything(Who::Fixed)));
        // In the future, so that none of them is old however slow the machine is.
        let at = |place: usize| Instant::now() + KEPT * 60 + Duration::from_secs(place as u64);
        let name = |place: usize| Question::Token(&place.to_string()).hash([0; 16]);
        let mut known: Known = (0..MAX_KEPT).map(|place| (name(place), (at(place), counts()))).collect();
        known.insert(name(7), (long_ago(), counts()));
        known.insert(name(8), (at(8), None));
        make_room(&mut known);
        assert!(known.len() == MAX_KEPT - 1 && !known.contains_key(&name(7)), "the old one");
        known.insert(name(7), (at(7), counts()));
        make_room(&mut known);
        assert!(known.len() == MAX_KEPT - 1 && !known.contains_key(&name(8)), "the one that does not count");
        known.insert(name(8), (at(8), counts()));
        make_room(&mut known);
        assert!(known.len() == MAX_KEPT - 1 && !known.contains_key(&name(0)), "the first");
    }

    #[tokio::test]
    async fn an_answer_is_kept_also_while_many_tokens_are_tried() {
        let store = Queue::new(MemoryQueue::new()).unwrap().control().unwrap();
        let secret = Tokens::new(store.clone()).create("ci", &Rights::new([Right::Read], ["*"]), None).await;
        let token = secret.unwrap().unwrap().text();
        let keys = Keys::new(&[], Some(&store), true).await.unwrap();
        for number in 0..MAX_KEPT + 10 {
            assert!(keys.of(&format!("aq_ci_{number:032x}")).await.unwrap().is_none());
        }
        assert!(keys.lock().len() <= MAX_KEPT);
        assert!(keys.of(&token).await.unwrap().is_some());
        let asked = Question::Token(&token).hash(keys.key);
        assert!(keys.lock().contains_key(&asked), "the next request need not ask the store");
    }

    #[tokio::test]
    async fn what_the_store_shows_of_a_token_opens_nothing_also_while_answers_about_it_are_kept() {
        let store = Queue::new(MemoryQueue::new()).unwrap().control().unwrap();
        let tokens = Tokens::new(store.clone());
        let secret = tokens.create("ci", &Rights::new([Right::Read], ["*"]), None).await.unwrap().unwrap();
        let keys = Keys::new(&[], Some(&store), true).await.unwrap();
        let access = keys.of(&secret.text()).await.unwrap().unwrap();
        assert!(keys.still(&access).await.unwrap());
        let Who::Token(token) = &access.who else { panic!("{access:?}") };
        let digest = token.fingerprint();
        for text in [format!("still ci {digest}"), format!("{digest}ci"), digest.to_owned()] {
            assert!(keys.of(&text).await.unwrap().is_none(), "{text}");
        }
    }
}
