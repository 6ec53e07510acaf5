//! Calls that wait to be entered, and are entered together.
//!
//! The caller that has the turn enters all waiting calls, including its own, and replies to their callers. So
//! of many calls that arrive at once, the first one is entered alone, and the others with the next call of
//! the store. Only other processes can take the numbers.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use anyqueue::control::{Applied, ControlStore};
use anyqueue::{Error, ErrorKind, Page, Result};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Mutex as Turn, oneshot};

use super::begun::{Begun, MAX_TOGETHER, enter};
use super::call::Call;
use super::keys::{AUDIT, number_of};

/// How often to try for numbers while other processes take them.
const ROUNDS: usize = 64;

/// The calls of one process.
#[derive(Debug, Default)]
pub(super) struct Together {
    /// Bounded by the callers that wait for a reply: the call of a caller that has gone is not entered.
    waiting: Mutex<VecDeque<Waiting>>,
    turn: Turn<()>,
}

#[derive(Debug)]
struct Waiting {
    call: Call,
    answer: oneshot::Sender<Result<Begun>>,
}

impl Together {
    pub(super) async fn begin(&self, store: &ControlStore, call: &Call) -> Result<Begun> {
        loop {
            let (answer, mut answered) = oneshot::channel();
            self.change(|waiting| waiting.push_back(Waiting { call: call.clone(), answer }));
            let turn = tokio::select! {
                biased;
                answer = &mut answered => match answer {
                    Ok(answer) => return answer,
                    // The caller that was entering it was dropped while doing so.
                    Err(_) => continue,
                },
                turn = self.turn.lock() => turn,
            };
            // Kept until the caller's own reply is there, which may take several calls of the store if many
            // are waiting.
            loop {
                match answered.try_recv() {
                    Ok(answer) => return answer,
                    Err(TryRecvError::Empty) => self.enter_next(store).await,
                    Err(TryRecvError::Closed) => break,
                }
            }
            drop(turn);
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut VecDeque<Waiting>) -> T) -> T {
        change(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The calls that have waited longest, as many as fit one call of the store.
    fn next(&self) -> Vec<Waiting> {
        self.change(|waiting| {
            waiting.retain(|one| !one.answer.is_closed());
            let count = waiting.len().min(MAX_TOGETHER);
            waiting.drain(..count).collect()
        })
    }

    async fn enter_next(&self, store: &ControlStore) {
        let mut left = self.next();
        for _ in 0..ROUNDS {
            if left.is_empty() {
                return;
            }
            left = match try_to_enter(store, &left).await {
                Ok(entered) => answer_those_entered(left, entered),
                Err(error) => return refuse(left, &error),
            };
        }
        let text = "others keep writing to the audit trail: try again";
        refuse(left, &Error::new(ErrorKind::Unavailable, text));
    }
}

/// Tries to enter calls; returns `None` for those whose numbers somebody else took in the meantime.
async fn try_to_enter(store: &ControlStore, all: &[Waiting]) -> Result<Vec<Option<Begun>>> {
    let newest = store.list(AUDIT, Page::of(1)).await?;
    let last = newest.value.first().map(|entry| number_of(&entry.key)).transpose()?.unwrap_or(0);
    let (begun, changes) = enter(all.iter().map(|one| &one.call), last, newest.now)?;
    let applied = store.apply_all(changes).await?.value;
    Ok(begun
        .into_iter()
        .zip(&applied)
        .map(|(begun, applied)| Applied::is_done(applied).then_some(begun))
        .collect())
}

/// Replies to the callers whose calls were entered, and returns the others.
fn answer_those_entered(all: Vec<Waiting>, entered: Vec<Option<Begun>>) -> Vec<Waiting> {
    let mut left = Vec::new();
    for (one, begun) in all.into_iter().zip(entered) {
        match begun {
            // A caller that has gone in the meantime gets no reply.
            Some(begun) => drop(one.answer.send(Ok(begun))),
            None => left.push(one),
        }
    }
    left
}

fn refuse(all: Vec<Waiting>, error: &Error) {
    for one in all {
        let _ = one.answer.send(Err(error.clone()));
    }
}
