//! Moves one queue: pull, copy, confirm, remove.

use std::time::Duration;

use anyqueue::adapter::{DEATH_BYTES, Dedup};
use anyqueue::{
    Delivery, Error, ErrorKind, MessageData, MessageId, PushOutcome, Queue, QueueMessageStatus, SettleOutcome,
};
use tokio::sync::watch;

use super::account::Account;
use super::copies::{Without, copy, live};
use super::route::Route;
use crate::failure::{Failure, Result, with_causes};
use crate::output::Output;

/// The move's lease on what it pulls; it is extended while the move runs. It is short, so that the messages
/// of a killed move soon come back.
pub(super) const LEASE: Duration = Duration::from_secs(10);

/// The two backends and the options.
pub(crate) struct Transfer<'a> {
    pub(crate) source: &'a Queue,
    pub(crate) target: &'a Queue,
    pub(crate) without: &'a [Without],
    pub(crate) batch: usize,
    pub(crate) wait: Duration,
    pub(crate) output: Output,
    pub(crate) stop: watch::Receiver<bool>,
}

impl Transfer<'_> {
    /// Moves messages until no more come, or the move is asked to stop.
    pub(crate) async fn run(&self, route: &Route, account: &mut Account) -> Result {
        if self.source.capabilities().pause && self.source.is_paused(&route.from.live()).await? {
            let text =
                format!("{} is paused at the source and delivers nothing: resume it there first", route.from);
            return Err(Failure::Failed(text));
        }
        self.run_delayed(route, account).await?;
        self.run_ready(route, account).await?;
        // Messages that producers or consumers have delayed meanwhile.
        self.run_delayed(route, account).await
    }

    async fn run_ready(&self, route: &Route, account: &mut Account) -> Result {
        let bar = self.output.progress("moved", self.waiting(route).await);
        // Held until the move ends, so that they are not delivered again.
        let mut refused = Vec::new();
        let end = loop {
            let held = match self.pull(route).await {
                Ok(Some(held)) if !held.is_empty() => held,
                Ok(_) => break Ok(()),
                Err(error) => break Err(error),
            };
            if let Err(error) = self.batch(route, held, account, &mut refused).await {
                break Err(error);
            }
            bar.set_position(account.moved + account.already_there);
            if let Err(too_many) = account.not_too_many_refusals() {
                break Err(too_many);
            }
        };
        bar.finish_and_clear();
        // What cannot be released now comes back when its lease ends.
        self.source.settle_many(refused.iter_mut().map(|h| (h, QueueMessageStatus::Waiting))).await;
        end
    }

    async fn waiting(&self, route: &Route) -> Option<u64> {
        let counts = self.source.counts(&route.from).await.ok()?;
        if route.from.is_dead_letters() { counts.dead } else { counts.ready }
    }

    /// Pulls the next batch; `None` if the move is asked to stop.
    async fn pull(&self, route: &Route) -> Result<Option<Vec<Delivery>>> {
        let mut stop = self.stop.clone();
        if *stop.borrow() {
            return Ok(None);
        }
        let pull = self.source.pull(&route.from).max(self.batch).wait(self.wait);
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => Ok(None), // what the pull claims is released
            held = pull => Ok(Some(held?)),
        }
    }

    async fn batch(
        &self,
        route: &Route,
        held: Vec<Delivery>,
        account: &mut Account,
        refused: &mut Vec<Delivery>,
    ) -> Result {
        let copies: Vec<_> = held.iter().map(|h| copy(h.message(), h.age(), self.without)).collect();
        let mut there = Vec::new();
        let mut end = Ok(());
        for (handler, result) in held.into_iter().zip(self.push(route, copies).await) {
            match PushVerdict::of(handler.id(), result) {
                PushVerdict::Stored => there.push((handler, false)),
                PushVerdict::AlreadyThere => there.push((handler, true)),
                PushVerdict::Refused(why) => {
                    account.refuse(handler.id(), &why, self.output);
                    refused.push(handler);
                }
                // The delivery is dropped, and so released.
                PushVerdict::Failed(error) => {
                    account.fail(1, &error);
                    end = Err(error.into());
                }
            }
        }
        self.remove(there, account).await?;
        end
    }

    /// Pushes the copies, and returns a result for each.
    pub(super) async fn push(
        &self,
        route: &Route,
        copies: Vec<MessageData>,
    ) -> Vec<anyqueue::Result<PushOutcome>> {
        let may_drop = matches!(self.target.capabilities().dedup, Dedup::Window(_));
        let stays = |copy: &MessageData| may_drop && copy.options().dedup_key.is_some();
        let stay: Vec<bool> = copies.iter().map(stays).collect();
        let sent = copies.into_iter().filter(|copy| !stays(copy)).collect();
        let mut results = self.store(route, sent).await.into_iter();
        let result =
            |stays| if stays { Err(untold()) } else { results.next().unwrap_or_else(|| Err(missing())) };
        stay.into_iter().map(result).collect()
    }

    /// Dead letters are pushed directly to the storage: the queue refuses to let applications push them.
    async fn store(&self, route: &Route, copies: Vec<MessageData>) -> Vec<anyqueue::Result<PushOutcome>> {
        if !route.to.is_dead_letters() {
            let (count, copies) = (copies.len(), copies.into_iter().map(live).collect());
            let results = self.target.push_many(&route.to, copies).await;
            return results.unwrap_or_else(|error| vec![Err(error); count]);
        }
        let storage = self.target.storage();
        let limits = self.target.capabilities().limits;
        let mut results = Vec::with_capacity(copies.len());
        for copy in copies {
            // One by one: dead letters are few, and a call with a single message need not be split by size.
            let bytes = storage.encoded_len(&copy);
            results.push(if bytes > limits.message_bytes.saturating_add(DEATH_BYTES) {
                Err(Error::new(ErrorKind::TooLarge, format!("it has {bytes} bytes in its stored form")))
            } else {
                let result = storage.push(&route.to, &[copy]).await.into_iter().next();
                result.unwrap_or_else(|| Err(missing()))
            });
        }
        results
    }

    /// Removes from the source what is at the target.
    async fn remove(&self, mut there: Vec<(Delivery, bool)>, account: &mut Account) -> Result {
        let all = there.iter_mut().map(|(handler, _)| (handler, QueueMessageStatus::Processed));
        let outcomes = self.source.settle_many(all).await;
        let mut end = Ok(());
        for ((handler, already), outcome) in there.iter().zip(outcomes) {
            match outcome {
                Ok(SettleOutcome::Settled) if *already => account.already_there += 1,
                Ok(SettleOutcome::Settled) => {
                    account.moved += 1;
                    let is_repeated = handler.delivery_count().is_some_and(|count| count > 1);
                    account.delivered_before += u64::from(is_repeated);
                }
                Ok(SettleOutcome::Lost) => {
                    account.in_both += 1;
                    let id = handler.id();
                    self.output.warn(&format!(
                        "{id} was copied, but a consumer of the source has taken it meanwhile"
                    ));
                }
                Err(error) => {
                    account.in_both += 1;
                    end = Err(error.into());
                }
            }
        }
        end
    }
}

fn missing() -> Error {
    Error::new(ErrorKind::Internal, "a push returned nothing")
}

/// The error for a copy that the target might drop silently: the message would then be removed from the
/// source, and be nowhere.
fn untold() -> Error {
    let text = "the target drops what comes with a deduplication key that it has had lately, and does not tell; \
        move it without its key (--without dedup-key)";
    Error::unsupported(text)
}

/// What the target did with a copy.
pub(super) enum PushVerdict {
    Stored,
    AlreadyThere,
    /// The target will never take it.
    Refused(String),
    /// The target cannot take it now.
    Failed(Error),
}

impl PushVerdict {
    pub(super) fn of(id: MessageId, result: anyqueue::Result<PushOutcome>) -> Self {
        match result {
            Ok(PushOutcome::Stored(_)) => Self::Stored,
            Ok(PushOutcome::Duplicate(Some(other)) | PushOutcome::Replaced(other)) if other != id => {
                Self::Refused(format!("{other} is at the target with the same deduplication key"))
            }
            Ok(PushOutcome::Duplicate(_) | PushOutcome::Replaced(_)) => Self::AlreadyThere,
            Err(error) => match error.kind() {
                ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::TooLarge => {
                    Self::Refused(with_causes(&error))
                }
                _ => Self::Failed(error),
            },
        }
    }
}
