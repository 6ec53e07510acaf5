//! Those who use the queue in a schedule: they push, pull, hold, settle, change their minds and go away, as the seed says.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::*;
use fastrand::Rng;
use futures_util::StreamExt;
use futures_util::future::{Either, select};

use crate::executor::{Spawns, cut, pass};
use crate::world::World;

/// The longest wait of a pull: longer than any lost wake-up may go unnoticed.
pub(crate) const WAIT: Duration = Duration::from_mins(1);
const MS: Duration = Duration::from_millis(1);

/// What every actor knows.
#[derive(Clone)]
pub(crate) struct Actor {
    pub(crate) world: Arc<World>,
    pub(crate) queue: Queue,
    pub(crate) spawns: Spawns,
    pub(crate) rng: Rng,
    /// Of 16 calls so many are dropped at some poll.
    pub(crate) cuts: u8,
    pub(crate) holds: Duration,
}

impl Actor {
    fn fork(&mut self) -> Self {
        Self { rng: self.rng.fork(), ..self.clone() }
    }

    async fn sleep(&self, duration: Duration) {
        self.queue.clock().sleep(duration).await;
    }

    /// The call, unless it is dropped on the way.
    async fn maybe<T>(&mut self, call: impl Future<Output = T>) -> Option<T> {
        if self.rng.u8(..16) < self.cuts { cut(self.rng.usize(..12), call).await } else { Some(call.await) }
    }

    fn message(&mut self) -> MessageData {
        let mut message = MessageData::new("x");
        if self.rng.u8(..6) == 0 {
            message = message.with_time_to_live(MS * self.rng.u32(1..40));
        }
        self.world.state().attempted.insert(message.id());
        message
    }

    fn acknowledged(&self, answer: &Result<PushOutcome>) {
        match answer {
            Ok(PushOutcome::Stored(id)) => {
                let mut state = self.world.state();
                state.acknowledged.insert(*id);
                state.progress += 1;
            }
            Ok(PushOutcome::Duplicate(_) | PushOutcome::Replaced(_)) => {
                panic!("pushed once, and answered as a duplicate")
            }
            Err(error) => expected(error),
        }
    }

    pub(crate) async fn pushes(mut self, messages: usize) {
        for _ in 0..messages {
            if self.rng.u8(..4) == 0 {
                let batch = (0..3).map(|_| self.message()).collect();
                let queue = self.queue.clone();
                match self.maybe(queue.push_many("p", batch)).await {
                    Some(Ok(answers)) => answers.iter().for_each(|answer| self.acknowledged(answer)),
                    Some(Err(error)) => expected(&error),
                    None => {}
                }
            } else {
                let (queue, message) = (self.queue.clone(), self.message());
                if let Some(answer) = self.maybe(queue.push("p", message)).await {
                    self.acknowledged(&answer);
                }
            }
            if self.rng.u8(..3) == 0 {
                let pause = MS * self.rng.u32(..20);
                self.sleep(pause).await;
            }
        }
    }

    pub(crate) async fn pulls(mut self, times: usize) {
        for _ in 0..times {
            let wait = match self.rng.u8(..4) {
                0 => Duration::ZERO,
                1 => 20 * MS,
                _ => WAIT,
            };
            let pull = self.queue.pull("p").max(self.rng.usize(1..=4)).wait(wait);
            let waits = (wait == WAIT).then(|| Count::of(&self.world, |state| &mut state.waiting));
            let got = match self.maybe(pull.into_future()).await {
                Some(Ok(got)) => got,
                Some(Err(error)) => {
                    expected(&error);
                    continue;
                }
                None => continue,
            };
            drop(waits);
            self.live(got).await;
        }
    }

    pub(crate) async fn streams(mut self, items: usize) {
        let mut stream = self.queue.stream("p").window(self.rng.usize(1..=4)).build().unwrap();
        for _ in 0..items {
            let waits = Count::of(&self.world, |state| &mut state.waiting);
            let clock = self.queue.clock().clone();
            let next = match select(stream.next(), pin!(clock.sleep(WAIT))).await {
                Either::Left((next, _)) => next,
                Either::Right(_) => None,
            };
            drop(waits);
            match next {
                Some(Ok(handler)) => self.live(vec![handler]).await,
                Some(Err(error)) => expected(&error),
                None => return,
            }
        }
    }

    /// A pull loop whose settlements bring more.
    pub(crate) async fn settle_pulls(mut self, times: usize) {
        let mut settle_pulls = self.queue.settle_pulls("p", None).unwrap();
        settle_pulls.set_open(true);
        for _ in 0..times {
            match self.queue.pull("p").max(2).wait(20 * MS).await {
                Ok(got) => {
                    let bound = got.into_iter().map(|handler| settle_pulls.bind(handler)).collect();
                    self.live(bound).await;
                }
                Err(error) => expected(&error),
            }
            let clock = self.queue.clock().clone();
            let brought = match select(pin!(settle_pulls.next()), pin!(clock.sleep(5 * MS))).await {
                Either::Left((brought, _)) => brought,
                Either::Right(_) => Vec::new(),
            };
            self.live(brought).await;
            settle_pulls.set_open(self.rng.u8(..4) > 0);
        }
        let left = settle_pulls.take();
        self.live(left).await;
    }

    /// What becomes of deliveries: each in a task of its own, or all together.
    async fn live(&mut self, mut got: Vec<Delivery>) {
        self.world.state().progress += 1;
        if got.len() > 1 && self.rng.u8(..3) == 0 {
            let _held = Count::of(&self.world, |state| &mut state.held);
            let statuses: Vec<_> = got.iter().map(|_| self.status()).collect();
            let removed: Vec<bool> = statuses.iter().map(|s| *s == QueueMessageStatus::Processed).collect();
            let queue = self.queue.clone();
            if let Some(answers) = self.maybe(queue.settle_many(got.iter_mut().zip(statuses))).await {
                for ((handler, answer), removed) in got.iter().zip(answers).zip(removed) {
                    self.told(handler, removed, &answer);
                }
            }
            return;
        }
        for handler in got {
            let actor = self.fork();
            self.spawns.spawn("a delivery", actor.life(handler));
        }
    }

    async fn life(mut self, mut handler: Delivery) {
        let _held = Count::of(&self.world, |state| &mut state.held);
        for _ in 0..self.rng.usize(..4) {
            self.world.check_trust(&handler);
            match self.rng.u8(..6) {
                0 | 1 => {
                    let pause = self.holds.mul_f64(self.rng.f64());
                    self.sleep(pause).await;
                }
                2 => {
                    let longer = self.holds.mul_f64(0.2 + self.rng.f64()).max(5 * MS);
                    if let Some(Err(error)) = self.maybe(handler.extend(longer)).await {
                        expected(&error);
                    }
                }
                _ => pass().await,
            }
        }
        self.world.check_trust(&handler);
        if self.rng.u8(..6) == 0 {
            return; // dropped
        }
        for _ in 0..3 {
            let status = self.status();
            let removes = status == QueueMessageStatus::Processed;
            let answer = self.maybe(handler.settle(status)).await;
            if let Some(answer) = &answer {
                self.told(&handler, removes, answer);
            }
            if matches!(answer, Some(Ok(_))) || self.rng.u8(..4) == 0 {
                return;
            }
        }
    }

    fn told(&self, handler: &Delivery, removes: bool, answer: &Result<SettleOutcome>) {
        match answer {
            Ok(SettleOutcome::Settled) if removes => self.world.told_removed(handler.id()),
            Ok(_) => {}
            Err(error) => expected(error),
        }
        self.world.state().progress += 1;
    }

    fn status(&mut self) -> QueueMessageStatus {
        match self.rng.u8(..8) {
            0 => QueueMessageStatus::Failed,
            1 => QueueMessageStatus::Waiting,
            2 => QueueMessageStatus::postponed(MS * self.rng.u32(..10)),
            3 if self.rng.bool() => QueueMessageStatus::poisonous("bad"),
            _ => QueueMessageStatus::Processed,
        }
    }

    /// Ends the queue some time.
    pub(crate) async fn closes(mut self) {
        let pause = MS * self.rng.u32(..60);
        self.sleep(pause).await;
        for _ in 0..self.rng.usize(..50) {
            pass().await;
        }
        self.queue.close().await.unwrap();
    }
}

/// Only what was brought about may be told.
fn expected(error: &Error) {
    let kinds = [ErrorKind::Unavailable, ErrorKind::TimedOut, ErrorKind::Closed];
    assert!(kinds.contains(&error.kind()), "unexpected: {error}");
}

/// Counted while it lives.
struct Count(Arc<World>, fn(&mut crate::world::State) -> &mut usize);

impl Count {
    fn of(world: &Arc<World>, which: fn(&mut crate::world::State) -> &mut usize) -> Self {
        *which(&mut world.state()) += 1;
        Self(world.clone(), which)
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        *(self.1)(&mut self.0.state()) -= 1;
    }
}
