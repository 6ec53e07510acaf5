//! The lifetime of one publishing connection: its channels, and what was declared on it.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyqueue::{Error, ErrorKind, Result};
use futures_util::future::join_all;
use lapin::options::ConfirmSelectOptions;
use lapin::{Channel, Connection};
use tokio::sync::Semaphore;
use tokio::time::timeout_at;
use tokio_util::sync::CancellationToken;

use super::growth::Growing;
use super::publication::{Publication, classify_too_large, confirmation, full, outcomes, send, too_large};
use crate::error::{ERRORS, Right, classify, timed_out, uncertain};
use crate::names::{LevelQueue, Names};

/// The time between two checks of whether the broker accepts messages again.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// A queue that was declared earlier than this is running.
const YOUNG: Duration = Duration::from_secs(5);

/// The most concurrent calls that publish. Further calls wait for their turn.
const CHANNELS: usize = 16;

/// The name of a lock, held by one task of this connection. Dropping it frees the name.
pub(super) struct LockName {
    name: String,
    locks: Arc<Mutex<HashSet<String>>>,
}

impl LockName {
    pub(super) fn as_str(&self) -> &str {
        &self.name
    }
}

impl Drop for LockName {
    fn drop(&mut self) {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}

/// See the module.
pub(super) struct Session {
    pub(super) conn: Arc<Connection>,
    /// Channels that are not in use.
    idle: Mutex<Vec<Channel>>,
    permits: Semaphore,
    /// What this session has declared (words of queues, names of queues and exchanges), and when each was
    /// last seen.
    declared: Mutex<HashMap<String, Instant>>,
    /// When something was last declared.
    last_declared: Mutex<Instant>,
    /// The locks that are held on this connection. The server knows which connection holds a lock, but not
    /// which task.
    locks: Arc<Mutex<HashSet<String>>>,
    /// Queues that are not yet old enough for a push to return.
    pub(super) growing: Growing,
    /// Cancelled when the session is dropped.
    pub(super) ended: CancellationToken,
    /// The largest body that the broker accepts. It is known once the broker has refused one.
    max_body_bytes: AtomicU64,
    /// The channel for declarations only, because a refused declaration closes the channel.
    pub(super) control: tokio::sync::Mutex<Option<Channel>>,
    /// The channel for declaring queues that hold messages for a time. That may have to wait for other clients,
    /// and holds up nothing else meanwhile.
    pub(super) holding: tokio::sync::Mutex<Option<Channel>>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

impl Session {
    pub(super) fn new(conn: Arc<Connection>, control: Channel) -> Self {
        Self {
            conn,
            idle: Mutex::default(),
            permits: Semaphore::new(CHANNELS),
            declared: Mutex::default(),
            last_declared: Mutex::new(Instant::now()),
            locks: Arc::default(),
            growing: Growing::default(),
            ended: CancellationToken::new(),
            max_body_bytes: AtomicU64::new(u64::MAX),
            control: tokio::sync::Mutex::new(Some(control)),
            holding: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        self.conn.status().connected()
    }

    fn declared(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn knows(&self, name: &str) -> bool {
        self.declared().contains_key(name)
    }

    /// Whether the queue or exchange was seen within this time.
    pub(super) fn was_seen(&self, name: &str, within: Duration) -> bool {
        self.declared().get(name).is_some_and(|seen| seen.elapsed() < within)
    }

    pub(super) fn has_seen(&self, name: String) {
        self.declared().insert(name, Instant::now());
    }

    /// Takes the name of a lock for one task. Returns `None` if another task has it.
    pub(super) fn lock(&self, name: String) -> Option<LockName> {
        let is_free = self.locks.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone());
        is_free.then(|| LockName { name, locks: Arc::clone(&self.locks) })
    }

    /// Records what was declared.
    pub(super) fn has_declared(&self, name: String) {
        *self.last_declared.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.has_seen(name);
    }

    /// Forgets a queue that somebody has removed, or may have removed, so that it is declared again.
    pub(super) fn forget_queue(&self, names: &Names, level_queue: &LevelQueue) {
        let mut declared = self.declared();
        declared.remove(&level_queue.routing_word());
        declared.remove(&names.due_queue(level_queue));
    }

    /// Forgets a queue that somebody has removed, or may have removed.
    pub(super) fn forget(&self, name: &str) {
        self.declared().remove(name);
    }

    /// The largest body that the broker accepts, if that is known; otherwise the largest number.
    pub(super) fn max_body_bytes(&self) -> u64 {
        self.max_body_bytes.load(Ordering::Relaxed)
    }

    /// Returns the channel for declarations. Opens another one if the last was closed.
    pub(super) async fn control<'c>(&self, control: &'c mut Option<Channel>) -> Result<&'c Channel> {
        if control.as_ref().is_some_and(|channel| !channel.status().connected()) {
            *control = None;
        }
        let current = match control.take() {
            Some(channel) => channel,
            None => self.conn.create_channel().await.map_err(classify)?,
        };
        Ok(control.insert(current))
    }

    /// Publishes messages, except those that are known to be too large.
    pub(super) async fn publish(
        &self,
        messages: &[Publication],
        mandatory: bool,
        deadline: Instant,
    ) -> Vec<Result<()>> {
        let most = self.max_body_bytes();
        let fits = |message: &&Publication| message.body.len() as u64 <= most;
        if messages.iter().all(|message| fits(&message)) {
            return self.publish_all(messages, mandatory, deadline).await;
        }
        let fitting: Vec<Publication> = messages.iter().filter(fits).cloned().collect();
        let sent = match fitting.as_slice() {
            [] => Vec::new(),
            fitting => self.publish_all(fitting, mandatory, deadline).await,
        };
        let mut sent = sent.into_iter();
        let answer = |message| {
            if fits(&message) {
                sent.next().unwrap_or_else(|| Err(timed_out()))
            } else {
                Err(too_large(most))
            }
        };
        messages.iter().map(answer).collect()
    }

    /// Publishes messages on a channel that no other call uses meanwhile. The client does not say to which
    /// call a returned message belongs, so every message that is returned on the channel must be of this
    /// call.
    async fn publish_all(
        &self,
        messages: &[Publication],
        mandatory: bool,
        deadline: Instant,
    ) -> Vec<Result<()>> {
        let count = messages.len();
        let all = |error: Error| vec![Err(error); count];
        if let Err(error) = self.wait_until_unblocked(deadline).await {
            return all(error);
        }
        let Ok(Ok(_permit)) = timeout_at(deadline.into(), self.permits.acquire()).await else {
            return all(ERRORS.error(
                ErrorKind::Full,
                "too many messages wait for the broker's confirmation: nothing was sent",
            ));
        };
        let channel =
            match timeout_at(deadline.into(), self.channel()).await.unwrap_or_else(|_| Err(timed_out())) {
                Ok(channel) => channel,
                Err(error) => return all(error),
            };
        let sent: Vec<_> = messages.iter().map(|message| send(&channel, message, mandatory)).collect();
        let confirmed = sent.into_iter().map(|sent| async {
            match timeout_at(deadline.into(), confirmation(sent)).await {
                Ok(answer) => answer.map_err(|error| uncertain(Right::Write.classify(error))),
                Err(_) if self.conn.status().blocked() => Err(uncertain(full())),
                Err(_) => Err(uncertain(timed_out())),
            }
        });
        let confirmed = join_all(confirmed).await;
        if confirmed.iter().all(Result::is_ok) {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(channel);
            return outcomes(confirmed, messages, mandatory);
        }
        let mut answers = outcomes(confirmed, messages, mandatory);
        if let Some(most) = classify_too_large(messages, &mut answers) {
            self.max_body_bytes.fetch_min(most, Ordering::Relaxed);
        }
        answers
    }

    /// Whether something was declared a moment ago.
    pub(super) fn has_just_declared(&self) -> bool {
        self.last_declared.lock().unwrap_or_else(PoisonError::into_inner).elapsed() < YOUNG
    }

    /// Publishes again those messages whose error matches.
    pub(super) async fn publish_again(
        &self,
        messages: &[Publication],
        answers: &mut [Result<()>],
        is_match: fn(&Error) -> bool,
        deadline: Instant,
    ) {
        let is_match = |answer: &Result<()>| answer.as_ref().is_err_and(is_match);
        let again: Vec<Publication> = messages
            .iter()
            .zip(answers.iter())
            .filter(|(_, answer)| is_match(answer))
            .map(|(message, _)| message.clone())
            .collect();
        let slots = answers.iter_mut().filter(|answer| is_match(answer));
        for (slot, answer) in slots.zip(self.publish(&again, true, deadline).await) {
            *slot = answer;
        }
    }

    /// Returns a channel in confirm mode.
    async fn channel(&self) -> Result<Channel> {
        loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match idle {
                Some(channel) if channel.status().connected() => return Ok(channel),
                Some(_) => {}
                None => break,
            }
        }
        let channel = self.conn.create_channel().await.map_err(classify)?;
        channel.confirm_select(ConfirmSelectOptions::default()).await.map_err(classify)?;
        Ok(channel)
    }

    /// Waits until the broker accepts no messages.
    pub(super) async fn wait_until_blocked(&self) {
        while !self.conn.status().blocked() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until the broker accepts messages.
    pub(super) async fn wait_until_unblocked(&self, deadline: Instant) -> Result<()> {
        while self.conn.status().blocked() {
            if Instant::now() + POLL_INTERVAL > deadline {
                return Err(full());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }
}
