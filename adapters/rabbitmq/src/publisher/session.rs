//! What lives as long as one connection that publishes: its channels, and what it has declared.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyqueue::{Error, ErrorKind, Result};
use futures_util::future::join_all;
use lapin::options::ConfirmSelectOptions;
use lapin::{Channel, Connection};
use tokio::sync::Semaphore;
use tokio::time::timeout_at;

use super::CHANNELS;
use super::publication::{Publication, confirmation, full, is_refused, judge, send};
use crate::error::{Right, classify, own, silent, uncertain};

/// Between two looks whether the broker takes messages again.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// A queue that was declared longer ago is ready.
const YOUNG: Duration = Duration::from_secs(5);

/// What lives as long as one connection.
pub(super) struct Session {
    pub(super) conn: Arc<Connection>,
    /// Channels that nobody publishes on now.
    idle: Mutex<Vec<Channel>>,
    room: Semaphore,
    /// Words of lines, and names of the ladder's parts, that this session has declared.
    declared: Mutex<HashSet<String>>,
    /// When the last of them was.
    last_declared: Mutex<Instant>,
    /// Declares; apart, because what is refused ends its channel.
    pub(super) control: tokio::sync::Mutex<Option<Channel>>,
}

impl Session {
    pub(super) fn new(conn: Arc<Connection>, control: Channel) -> Self {
        Self {
            conn,
            idle: Mutex::default(),
            room: Semaphore::new(CHANNELS),
            declared: Mutex::default(),
            last_declared: Mutex::new(Instant::now()),
            control: tokio::sync::Mutex::new(Some(control)),
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        self.conn.status().connected()
    }

    pub(super) fn knows(&self, word: &str) -> bool {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner).contains(word)
    }

    pub(super) fn has_declared(&self, name: String) {
        *self.last_declared.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.declared.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
    }

    /// Somebody has removed a queue: what was declared is to be declared again.
    pub(super) fn forget(&self) {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The channel for declarations, opened anew if the last one ended.
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

    /// Publishes messages on a channel that nobody else uses meanwhile: the client does not tell whose a returned message is, so
    /// whatever comes back on the channel must be of this call.
    pub(super) async fn publish(
        &self,
        messages: &[Publication],
        mandatory: bool,
        deadline: Instant,
    ) -> Vec<Result<()>> {
        let count = messages.len();
        let all = |error: Error| vec![Err(error); count];
        if let Err(error) = self.takes_messages(deadline).await {
            return all(error);
        }
        let Ok(Ok(_room)) = timeout_at(deadline.into(), self.room.acquire()).await else {
            return all(own(
                ErrorKind::Full,
                "too many messages wait for the broker's word: nothing was sent",
            ));
        };
        let channel =
            match timeout_at(deadline.into(), self.channel()).await.unwrap_or_else(|_| Err(silent())) {
                Ok(channel) => channel,
                Err(error) => return all(error),
            };
        let sent: Vec<_> = messages.iter().map(|message| send(&channel, message, mandatory)).collect();
        let confirmed = sent.into_iter().map(|sent| async {
            match timeout_at(deadline.into(), confirmation(sent)).await {
                Ok(answer) => answer.map_err(|error| uncertain(Right::Write.classify(error))),
                Err(_) if self.conn.status().blocked() => Err(uncertain(full())),
                Err(_) => Err(uncertain(silent())),
            }
        });
        let confirmed = join_all(confirmed).await;
        if confirmed.iter().all(Result::is_ok) {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(channel);
        }
        judge(confirmed, messages, mandatory)
    }

    /// Whether a line was declared a moment ago.
    pub(super) fn is_young(&self) -> bool {
        self.last_declared.lock().unwrap_or_else(PoisonError::into_inner).elapsed() < YOUNG
    }

    /// Publishes again what was refused.
    pub(super) async fn publish_refused(
        &self,
        messages: &[Publication],
        answers: &mut [Result<()>],
        deadline: Instant,
    ) {
        let is_refused = |answer: &Result<()>| answer.as_ref().is_err_and(is_refused);
        let again: Vec<Publication> = messages
            .iter()
            .zip(answers.iter())
            .filter(|(_, answer)| is_refused(answer))
            .map(|(message, _)| message.clone())
            .collect();
        let places = answers.iter_mut().filter(|answer| is_refused(answer));
        for (place, answer) in places.zip(self.publish(&again, true, deadline).await) {
            *place = answer;
        }
    }

    /// A channel in confirm mode.
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

    /// Waits until the broker takes nothing any more.
    pub(super) async fn blocked(&self) {
        while !self.conn.status().blocked() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits while the broker takes nothing.
    pub(super) async fn takes_messages(&self, deadline: Instant) -> Result<()> {
        while self.conn.status().blocked() {
            if Instant::now() + LOOK > deadline {
                return Err(full());
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }
}
