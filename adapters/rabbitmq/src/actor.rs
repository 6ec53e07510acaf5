//! The one owner of a partition's consuming channel: a task that serves pulls and settlements in turn.

mod care;
mod flow;
mod timers;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use anyqueue::adapter::{Delivery, Lease};
use anyqueue::{Error, MessageId, PartitionId, Result};
use tokio::sync::mpsc;

use crate::command::{Claim, Command, Settled, Verb, Waiting};
use crate::config::QueueType;
use crate::desk::{Arrived, Desk};
use crate::error::closed;
use crate::stock::Stock;
use crate::token::Tag;
use crate::tools::Tools;

/// Commands that may wait for the task. More wait in their tasks.
pub(crate) const COMMANDS: usize = 1024;

pub(crate) struct Actor {
    pub(crate) tools: Arc<Tools>,
    pub(crate) partition: PartitionId,
    commands: mpsc::Receiver<Command>,
    own: mpsc::WeakSender<Command>,
    pub(crate) levels: BTreeSet<u8>,
    /// Levels whose queues are gone and could not be made anew, and since when.
    pub(crate) missing: BTreeMap<u8, Instant>,
    /// Levels whose dead letters were seen to.
    pub(crate) guarded: BTreeSet<u8>,
    pub(crate) stock: Stock,
    pub(crate) desk: Option<Desk>,
    pub(crate) waiting: VecDeque<Waiting>,
    /// Messages of which copies are being made.
    copying: HashMap<u64, Arrived>,
    last_pull: Instant,
    tell_at: Option<Instant>,
    spare_until: Option<Instant>,
    idle_at: Option<Instant>,
}

impl Actor {
    /// Starts a task; it ends when all senders are gone, or the storage is closed.
    pub(crate) fn start(
        tools: &Arc<Tools>,
        partition: &PartitionId,
    ) -> (mpsc::Sender<Command>, impl Future<Output = ()> + use<>) {
        let (sender, commands) = mpsc::channel(COMMANDS);
        let actor = Self {
            tools: Arc::clone(tools),
            partition: partition.clone(),
            commands,
            own: sender.downgrade(),
            levels: BTreeSet::new(),
            missing: BTreeMap::new(),
            guarded: BTreeSet::new(),
            stock: Stock::new(tools.config.ready()),
            desk: None,
            waiting: VecDeque::new(),
            copying: HashMap::new(),
            last_pull: Instant::now(),
            tell_at: None,
            spare_until: None,
            idle_at: None,
        };
        (sender, actor.run())
    }

    async fn run(mut self) {
        let closed = self.tools.closed.clone();
        loop {
            let timer = self.next_timer();
            let happened = tokio::select! {
                biased;
                () = closed.cancelled() => break,
                command = self.commands.recv() => match command {
                    Some(command) => self.obey(command),
                    None => break,
                },
                come = next(&mut self.desk) => come,
                () = at(timer) => Ok(()),
            };
            let served = match happened.and_then(|()| self.take_in()) {
                Ok(()) => tokio::select! {
                    biased;
                    () = closed.cancelled() => break,
                    served = self.serve_and_heal() => served,
                },
                Err(error) => Err(error),
            };
            if let Err(error) = served {
                self.lose(&error);
            }
            self.care();
            self.set_timers();
        }
        self.finish().await;
    }

    /// Takes in all that is there already, so that it is served together.
    fn take_in(&mut self) -> Result<()> {
        while let Ok(command) = self.commands.try_recv() {
            self.obey(command)?;
        }
        self.desk.as_mut().map_or(Ok(()), Desk::take_in)
    }

    fn obey(&mut self, command: Command) -> Result<()> {
        if self.desk.as_ref().is_some_and(|desk| !desk.is_alive()) {
            self.desk = None;
            self.copying.clear();
        }
        match command {
            Command::Pull(waiting) => {
                self.last_pull = Instant::now();
                self.waiting.push_back(waiting);
            }
            Command::Stop => {} // The pull itself knows; this only wakes.
            Command::Settle(items, reply) => {
                let answers = self.settle(items);
                let _ = reply.send(answers);
            }
            Command::Copied(tag, done) => self.copied(tag, done),
            Command::Holds(items, reply) => {
                let holds = items.into_iter().map(|(id, tag)| self.holds(id, tag)).collect();
                let _ = reply.send(holds);
            }
            Command::Back(tags) => self.take_back(&tags)?,
            Command::Level(level) => {
                self.missing.remove(&level);
                self.levels.insert(level);
            }
        }
        Ok(())
    }

    fn holds(&self, id: MessageId, tag: Tag) -> bool {
        self.desk.as_ref().is_some_and(|desk| {
            let held = desk.held.get(&tag.number);
            desk.life == tag.life && held.is_some_and(|held| held.stored.message.id() == id)
        })
    }

    fn settle(&mut self, items: Vec<(MessageId, Tag, Verb)>) -> Vec<Settled> {
        let mut returned = Vec::new();
        let mut answers = Vec::with_capacity(items.len());
        for (id, tag, verb) in items {
            let held = self.holds(id, tag);
            let desk = self.desk.as_mut().filter(|_| held);
            let Some((desk, arrived)) =
                desk.and_then(|desk| desk.held.remove(&tag.number).map(|held| (desk, held)))
            else {
                answers.push(Settled::Lost);
                continue;
            };
            answers.push(match verb {
                Verb::Remove => {
                    desk.is_settled(id);
                    desk.remove(tag.number);
                    Settled::Done
                }
                Verb::Return => {
                    returned.push(arrived);
                    Settled::Done
                }
                Verb::Copy => {
                    let original = Box::new(arrived.stored.clone());
                    self.copying.insert(tag.number, arrived);
                    Settled::Copy(original)
                }
            });
        }
        if let Some(desk) = &mut self.desk
            && !returned.is_empty()
            && let Err(error) = desk.give_back(returned)
        {
            self.lose(&error);
        }
        answers
    }

    fn copied(&mut self, tag: Tag, done: bool) {
        let Some(desk) = self.desk.as_mut().filter(|desk| desk.life == tag.life) else { return };
        match self.copying.remove(&tag.number) {
            Some(held) if done => {
                desk.is_settled(held.stored.message.id());
                desk.remove(tag.number);
            }
            Some(held) => drop(desk.held.insert(tag.number, held)),
            None => {}
        }
    }

    fn take_back(&mut self, tags: &[Tag]) -> Result<()> {
        let Some(desk) = &mut self.desk else { return Ok(()) };
        let mine = tags.iter().filter(|tag| tag.life == desk.life);
        let back: Vec<Arrived> = mine.filter_map(|tag| desk.held.remove(&tag.number)).collect();
        desk.give_back_unseen(back)
    }

    /// Returns a pull.
    pub(crate) fn reply(&mut self, waiting: Waiting, messages: Vec<Arrived>) {
        let Some(own) = self.own.upgrade() else { return };
        let counts = self.tools.config.queue_type == QueueType::Quorum;
        let now = self.tools.config.clock.wall();
        let deliveries = match &mut self.desk {
            Some(desk) => messages
                .into_iter()
                .map(|message| hand_over(desk, &self.partition, message, (counts, now)))
                .collect(),
            None => Vec::new(),
        };
        // If nobody is there any more, the claim gives everything back.
        let _ = waiting.reply.send(Ok(Claim::new(deliveries, own)));
    }

    /// The channel is gone, and with it whatever is held.
    fn lose(&mut self, error: &Error) {
        tracing::debug!(%error, partition = %self.partition, "a consumer's channel ended");
        if let Some(desk) = self.desk.take() {
            if error.kind() == anyqueue::ErrorKind::TimedOut {
                self.tools.feed.discard(&desk.conn);
            }
            desk.give_up();
        }
        self.copying.clear();
        for mut waiting in std::mem::take(&mut self.waiting) {
            if waiting.again || !may_pass(error) {
                let _ = waiting.reply.send(Err(error.clone()));
            } else {
                (waiting.fresh, waiting.again) = (true, true);
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
                Command::Pull(waiting) => drop(waiting.reply.send(Err(closed(anyqueue::Operation::Pull)))),
                other => drop(self.obey(other)),
            }
        }
        if let Some(desk) = self.desk.take() {
            desk.close().await;
        }
    }
}

/// Whether a pull that has got nothing yet can be tried once more. A server that is asked for messages of a queue that somebody else
/// is just making may end the connection (`INTERNAL_ERROR`, seen on 3.10), and then knows the queue a moment later.
fn may_pass(error: &Error) -> bool {
    error.kind() == anyqueue::ErrorKind::Unavailable && error.retry() != anyqueue::RetryClass::Never
}

/// Turns a message into a delivery, which is held from now on.
fn hand_over(
    desk: &mut Desk,
    partition: &PartitionId,
    message: Arrived,
    (counts, now): (bool, SystemTime),
) -> Delivery {
    let tag = Tag { life: desk.life, number: message.number };
    let stored = &message.stored;
    let lease = Lease { partition: partition.clone(), id: stored.message.id(), token: tag.token() };
    let mut delivery = Delivery::new(lease, stored.message.clone()).with_age(stored.age(now));
    if let Some(count) = stored.deliveries.filter(|_| counts) {
        delivery = delivery.with_delivery_count(count);
    }
    if let Some(raw) = &stored.raw {
        delivery = delivery.with_unreadable(Some(raw.why.clone()));
    }
    desk.held.insert(message.number, message);
    delivery
}

/// The next message of an open channel; never without one.
async fn next(desk: &mut Option<Desk>) -> Result<()> {
    match desk {
        Some(desk) => desk.next().await,
        None => std::future::pending().await,
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}
