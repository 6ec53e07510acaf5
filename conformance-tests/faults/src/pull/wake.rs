//! Faults of waiting: wake-ups that are lost in one situation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::{
    Action, PauseQueueStorage as _, PullQueueStorage as _, PullRequest, PushQueueStorage as _, Settlement,
    async_trait,
};
use anyqueue::{MessageData, PartitionId, Result};
use anyqueue_conformance::{Clause, Fault};
use tokio::sync::{Notify, watch};

use crate::quirk::{Client, Entry, Kept, Pulled, Pushed, Quirk, Settled, for_wait, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    subtle(Fault::ReleaseWakesNobody, &[Clause::ReadyAtOnce, Clause::AllWaitersWake], || {
        sleepers(Unheard::Release)
    }),
    subtle(Fault::MoveWakesNobody, &[Clause::ReadyAtOnce, Clause::AllWaitersWake], || {
        sleepers(Unheard::Move)
    }),
    subtle(Fault::FreedGroupWakesNobody, &[Clause::AllWaitersWake, Clause::Groups], || {
        sleepers(Unheard::FreedGroup)
    }),
    subtle(Fault::OthersUnheard, &[Clause::PushWakes, Clause::AllWaitersWake], || sleepers(Unheard::Others)),
    subtle(Fault::BatchWakesOne, &[Clause::AllWaitersWake], || sleepers(Unheard::RestOfBatch)),
    subtle(Fault::RestOfBatchAtDeadline, &[Clause::AllWaitersWake], || {
        sleepers_that_look(Unheard::RestOfBatch)
    }),
    subtle(Fault::ReturnedAtDeadline, &[Clause::ReadyAtOnce, Clause::AllWaitersWake], || {
        sleepers_that_look(Unheard::Release)
    }),
    subtle(Fault::ReturnWakesOne, &[Clause::ReadyAtOnce, Clause::AllWaitersWake], || {
        sleepers_that_look(Unheard::RestOfReturned)
    }),
    subtle(Fault::ResumeWakesOne, &[Clause::AllWaitersWake, Clause::Pause], || {
        sleepers_that_look(Unheard::RestOfResumed)
    }),
    subtle(Fault::FreedGroupForgetsOthers, &[Clause::AllWaitersWake, Clause::Groups], || {
        sleepers(Unheard::RestOfFreedGroup)
    }),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unheard {
    Release,
    Move,
    FreedGroup,
    Others,
    RestOfBatch,
    RestOfReturned,
    RestOfResumed,
    RestOfFreedGroup,
}

/// The waiting pulls. Before something that they must not notice happens, they stop listening; the next push
/// that they do notice makes them listen again.
#[derive(Debug)]
struct Sleepers {
    unheard: Unheard,
    /// Whether they look once more when their wait is over.
    look: bool,
    known: Kept<Vec<Arc<Sleeper>>>,
}

fn sleepers(unheard: Unheard) -> Arc<dyn Quirk> {
    Arc::new(Sleepers { unheard, look: false, known: Kept::default() })
}

fn sleepers_that_look(unheard: Unheard) -> Arc<dyn Quirk> {
    Arc::new(Sleepers { unheard, look: true, known: Kept::default() })
}

#[derive(Debug)]
struct Sleeper {
    partition: PartitionId,
    client: usize,
    deaf: watch::Sender<bool>,
    /// Notified when the pull has stopped listening.
    stopped: Notify,
}

/// A pull among the waiting ones, for as long as it waits.
struct Bed<'a> {
    sleepers: &'a Sleepers,
    sleeper: Arc<Sleeper>,
}

impl<'a> Bed<'a> {
    fn new(sleepers: &'a Sleepers, client: &Client, partition: &PartitionId) -> Self {
        let (partition, client) = (partition.clone(), client.number);
        let deaf = watch::Sender::new(false);
        let sleeper = Arc::new(Sleeper { partition, client, deaf, stopped: Notify::new() });
        sleepers.known.lock().push(Arc::clone(&sleeper));
        Self { sleepers, sleeper }
    }
}

impl Drop for Bed<'_> {
    fn drop(&mut self) {
        self.sleepers.known.lock().retain(|other| !Arc::ptr_eq(other, &self.sleeper));
        self.sleeper.stopped.notify_one();
    }
}

impl Sleepers {
    fn asleep(&self, partition: &PartitionId) -> Vec<Arc<Sleeper>> {
        self.known.lock().iter().filter(|sleeper| sleeper.partition == *partition).cloned().collect()
    }

    /// Returns when these pulls have stopped listening; does not wait long for one that nobody polls.
    async fn deafen(&self, sleepers: impl IntoIterator<Item = Arc<Sleeper>>) {
        for sleeper in sleepers {
            if !sleeper.deaf.send_replace(true) {
                let _never =
                    tokio::time::timeout(Duration::from_millis(100), sleeper.stopped.notified()).await;
            }
        }
    }

    /// Returns the partition whose waiting pulls do not notice this settlement.
    fn missed<'a>(&self, Settlement { lease, action, .. }: &'a Settlement) -> Option<&'a PartitionId> {
        match (self.unheard, action) {
            (Unheard::Release | Unheard::RestOfReturned, Action::Release | Action::Retry)
            | (Unheard::FreedGroup | Unheard::RestOfFreedGroup, Action::Remove) => Some(&lease.partition),
            (Unheard::Move, Action::Move { to, .. }) => Some(to),
            _ => None,
        }
    }
}

#[async_trait]
impl Quirk for Sleepers {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let deadline = Instant::now() + request.wait;
        let at_once = for_wait(&request, Duration::ZERO);
        let deliveries = client.right.pull(partition, at_once).await?;
        if !deliveries.is_empty() || request.wait.is_zero() {
            return Ok(deliveries);
        }
        let bed = Bed::new(self, client, partition);
        let mut deaf = bed.sleeper.deaf.subscribe();
        loop {
            let wait = deadline.saturating_duration_since(Instant::now());
            tokio::select! {
                biased;
                _ = deaf.wait_for(|deaf| *deaf) => {}
                answer = client.right.pull(partition, for_wait(&request, wait)) => return answer,
            }
            bed.sleeper.stopped.notify_one();
            let over = tokio::select! {
                _ = deaf.wait_for(|deaf| !*deaf) => false,
                () = tokio::time::sleep_until(deadline.into()) => true,
                () = request.stop.cancelled() => return Ok(Vec::new()),
                () = client.closed.cancelled() => return Ok(Vec::new()),
            };
            if over {
                let last = for_wait(&request, Duration::ZERO);
                return if self.look { client.right.pull(partition, last).await } else { Ok(Vec::new()) };
            }
        }
    }

    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let asleep = self.asleep(partition);
        let hears = |sleeper: &Sleeper| self.unheard != Unheard::Others || sleeper.client == client.number;
        let (hearing, unhearing): (Vec<_>, Vec<_>) = asleep.into_iter().partition(|sleeper| hears(sleeper));
        self.deafen(unhearing).await;
        let woken =
            if self.unheard == Unheard::RestOfBatch && messages.len() > 1 { 1 } else { hearing.len() };
        self.deafen(hearing.iter().skip(woken).cloned()).await;
        let answers = client.right.push(partition, messages).await;
        for sleeper in hearing.iter().take(woken) {
            sleeper.deaf.send_replace(false);
        }
        answers
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let woken = match self.unheard {
            Unheard::RestOfReturned if settlements.len() < 2 => usize::MAX,
            Unheard::RestOfReturned | Unheard::RestOfFreedGroup => 1,
            _ => 0,
        };
        for partition in settlements.iter().filter_map(|settlement| self.missed(settlement)) {
            self.deafen(self.asleep(partition).into_iter().skip(woken)).await;
        }
        client.right.settle(settlements).await
    }

    async fn set_paused(&self, client: &Client, partition: &PartitionId, paused: bool) -> Result<()> {
        if self.unheard == Unheard::RestOfResumed && !paused {
            self.deafen(self.asleep(partition).into_iter().skip(1)).await;
        }
        client.right.set_paused(partition, paused).await
    }
}
