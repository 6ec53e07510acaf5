//! The task that owns a partition's consumer channel and serves its pulls and settlements, one after the other.

mod maintenance;
mod pipeline;
mod settle;
mod timers;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use anyqueue::adapter::{Lease, RawDelivery};
use anyqueue::{Error, PartitionId, Result};
use tokio::sync::mpsc;

use crate::adaptive_prefetch::AdaptivePrefetch;
use crate::command::{Claim, Command, WaitingPull};
use crate::config::QueueType;
use crate::consumer_channel::{ConsumerChannel, Received};
use crate::error::ERRORS;
use crate::shared::Shared;
use crate::token::Tag;

/// How many commands may be queued for the task. Further senders wait for room.
pub(crate) const COMMANDS: usize = 1024;

pub(crate) struct Actor {
    pub(crate) shared: Arc<Shared>,
    pub(crate) partition: PartitionId,
    commands: mpsc::Receiver<Command>,
    own_sender: mpsc::WeakSender<Command>,
    pub(crate) levels: BTreeSet<u8>,
    /// Levels whose queues are gone and could not be declared again, and since when.
    pub(crate) missing: BTreeMap<u8, Instant>,
    /// Levels whose dead-letter queues were declared.
    pub(crate) dead_letters_declared: BTreeSet<u8>,
    pub(crate) adaptive_prefetch: AdaptivePrefetch,
    pub(crate) channel: Option<ConsumerChannel>,
    pub(crate) waiting: VecDeque<WaitingPull>,
    /// Deliveries that are kept until what their settlements store is published.
    kept: HashMap<u64, Received>,
    last_pull: Instant,
    flush_at: Option<Instant>,
    release_at: Option<Instant>,
    idle_at: Option<Instant>,
}

impl Actor {
    /// Starts the task. It ends when all senders are gone or the storage is closed.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        partition: &PartitionId,
    ) -> (mpsc::Sender<Command>, impl Future<Output = ()> + use<>) {
        let (sender, commands) = mpsc::channel(COMMANDS);
        let actor = Self {
            shared: Arc::clone(shared),
            partition: partition.clone(),
            commands,
            own_sender: sender.downgrade(),
            levels: BTreeSet::new(),
            missing: BTreeMap::new(),
            dead_letters_declared: BTreeSet::new(),
            adaptive_prefetch: AdaptivePrefetch::new(shared.config.ready()),
            channel: None,
            waiting: VecDeque::new(),
            kept: HashMap::new(),
            last_pull: Instant::now(),
            flush_at: None,
            release_at: None,
            idle_at: None,
        };
        (sender, actor.run())
    }

    async fn run(mut self) {
        let closed = self.shared.closed.clone();
        loop {
            let timer = self.next_timer();
            let happened = tokio::select! {
                biased;
                () = closed.cancelled() => break,
                command = self.commands.recv() => match command {
                    Some(command) => self.handle(command),
                    None => break,
                },
                come = next(&mut self.channel) => come,
                () = at(timer) => Ok(()),
            };
            let served = match happened.and_then(|()| self.take_in()) {
                Ok(()) => tokio::select! {
                    biased;
                    () = closed.cancelled() => break,
                    served = self.serve_and_redeclare() => served,
                },
                Err(error) => Err(error),
            };
            if let Err(error) = served {
                self.channel_lost(&error);
            }
            self.declare_dead_letters();
            self.set_timers();
        }
        self.finish().await;
    }

    /// Takes in everything that has arrived already, so that it is served together.
    fn take_in(&mut self) -> Result<()> {
        while let Ok(command) = self.commands.try_recv() {
            self.handle(command)?;
        }
        self.channel.as_mut().map_or(Ok(()), ConsumerChannel::take_in)
    }

    fn handle(&mut self, command: Command) -> Result<()> {
        if self.channel.as_ref().is_some_and(|channel| !channel.is_alive()) {
            self.channel = None;
            self.kept.clear();
        }
        match command {
            Command::Pull(waiting) => {
                self.last_pull = Instant::now();
                self.waiting.push_back(waiting);
            }
            Command::Stop => {} // The pull sees its own token; this only wakes the task.
            Command::Settle(items, reply) => {
                let answers = self.settle(items);
                if let Err(answers) = reply.send(answers) {
                    self.hold_again(answers);
                }
            }
            Command::End(tag, ending, reply) => {
                let _ = reply.send(self.end(tag, ending));
            }
            Command::Holds(items, reply) => {
                let holds = items.into_iter().map(|(id, tag)| self.owns(id, tag)).collect();
                let _ = reply.send(holds);
            }
            Command::Requeue(tags) => self.requeue_unclaimed(&tags)?,
            Command::Level(level) => {
                self.missing.remove(&level);
                self.levels.insert(level);
            }
        }
        Ok(())
    }

    /// Answers a pull.
    pub(crate) fn reply(&mut self, waiting: WaitingPull, messages: Vec<Received>) {
        let Some(sender) = self.own_sender.upgrade() else { return };
        let counts = self.shared.config.queue_type == QueueType::Quorum;
        let now = self.shared.config.clock.wall();
        let deliveries = match &mut self.channel {
            Some(channel) => messages
                .into_iter()
                .map(|message| hand_over(channel, &self.partition, message, (counts, now)))
                .collect(),
            None => Vec::new(),
        };
        // If the pull is gone, dropping the claim requeues everything.
        let _ = waiting.reply.send(Ok(Claim::new(deliveries, sender)));
    }

    /// Handles the loss of the channel, and of everything that was held on it.
    fn channel_lost(&mut self, error: &Error) {
        tracing::debug!(%error, partition = %self.partition, "a consumer channel was closed");
        if let Some(channel) = self.channel.take() {
            if error.kind() == anyqueue::ErrorKind::TimedOut {
                self.shared.consumers.discard(&channel.conn);
            }
            channel.abandon();
        }
        self.kept.clear();
        for mut waiting in std::mem::take(&mut self.waiting) {
            if waiting.is_retried || !may_pass(error) {
                let _ = waiting.reply.send(Err(error.clone()));
            } else {
                (waiting.fresh, waiting.is_retried) = (true, true);
                self.waiting.push_back(waiting);
            }
        }
    }

    async fn finish(mut self) {
        while let Some(waiting) = self.waiting.pop_front() {
            self.reply(waiting, Vec::new());
        }
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Pull(waiting) => {
                    drop(waiting.reply.send(Err(ERRORS.closed(anyqueue::Operation::Pull))));
                }
                other => drop(self.handle(other)),
            }
        }
        if let Some(channel) = self.channel.take() {
            channel.close().await;
        }
    }
}

/// Whether a pull that has received nothing yet can be tried once more. If a server is asked for messages of
/// a queue that another client is just declaring, it may end the connection (`INTERNAL_ERROR`, seen on 3.10);
/// a moment later it serves them.
fn may_pass(error: &Error) -> bool {
    error.kind() == anyqueue::ErrorKind::Unavailable && error.retry() != anyqueue::RetryClass::Never
}

/// Turns a message into a delivery, which is held from then on.
fn hand_over(
    channel: &mut ConsumerChannel,
    partition: &PartitionId,
    message: Received,
    (counts, now): (bool, SystemTime),
) -> RawDelivery {
    let tag = Tag { channel_id: channel.id, delivery_tag: message.delivery_tag };
    let record = &message.record;
    let lease = Lease { partition: partition.clone(), id: record.message.id(), token: tag.token() };
    let mut delivery = RawDelivery::new(lease, record.message.clone()).with_age(record.age(now));
    if let Some(count) = record.deliveries.filter(|_| counts) {
        delivery = delivery.with_delivery_count(count);
    }
    if let Some(unreadable) = &record.unreadable {
        delivery = delivery.with_unreadable(Some(unreadable.why.clone()));
    }
    channel.held.insert(message.delivery_tag, message);
    delivery
}

/// Receives the next message of an open channel. Without a channel it waits forever.
async fn next(channel: &mut Option<ConsumerChannel>) -> Result<()> {
    match channel {
        Some(channel) => channel.next().await,
        None => std::future::pending().await,
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}
