//! Where a plan is carried out: a storage of its own, and the clock that it runs on.
//!
//! On the machine's clock, the processes run as they please. On a controlled clock, they run in one task,
//! which lets time pass only when none of them has anything left to do at this moment: so the seed decides
//! everything.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyqueue::adapter::Capabilities;
use anyqueue::{Clock, ManualClock, MessageData, PartitionId, Result};
use futures_util::future::{Either, select};
use tokio::sync::{Mutex as Turn, MutexGuard};

use super::generate::{BEAT, PARTITIONS};
use super::plan::{Place, Plan};
use crate::account::Stuck;
use crate::check::Rules;
use crate::clause::Clause;
use crate::harness::Harness;
use crate::history::History;
use crate::recorder::Recorder;

/// After this many turns, everybody who can do something without time passing has done it.
const TURNS: usize = 16;

/// If a call takes its turn out of the runtime's hands, it is waited for in steps of this length.
const GLANCE: Duration = Duration::from_millis(1);

/// The clock that a stage runs on.
#[derive(Debug)]
pub(crate) enum Time {
    Machine,
    Controlled(ManualClock),
}

/// Where a plan is carried out: a storage of its own, and what its processes share.
pub(crate) struct Stage {
    pub(super) harness: Arc<dyn Harness>,
    pub(super) namespace: String,
    time: Time,
    /// Held during each call, if the seed must decide what otherwise the machine would.
    turn: Option<Turn<()>>,
    pub(super) clock: Clock,
    pub(super) history: Arc<History>,
    pub(super) rules: Rules,
    pub(super) seed: u64,
    pub(super) sent: Mutex<Vec<MessageData>>,
}

impl Stage {
    /// Creates a stage for this plan. If `waits`, a call may wait for others, so several must be able to run
    /// at once.
    pub(crate) fn new(
        harness: Arc<dyn Harness>,
        capabilities: &Capabilities,
        time: Time,
        waits: bool,
        plan: &Plan,
    ) -> Self {
        let (clock, rules, turn) = match &time {
            Time::Machine => (Clock::system(), Rules::of(capabilities), None),
            Time::Controlled(clock) => {
                let turn = (!waits).then(|| Turn::new(()));
                (clock.clock(), Rules::on_controlled_time(capabilities), turn)
            }
        };
        Self {
            harness,
            namespace: format!("random_{}", uuid::Uuid::new_v4().simple()),
            time,
            turn,
            history: Arc::new(History::on(clock.clone())),
            clock,
            rules,
            seed: plan.seed,
            sent: Mutex::default(),
        }
    }

    /// Opens a client that writes into the history.
    pub(super) async fn open(&self, name: &str) -> Result<Recorder> {
        let _turn = self.turn().await;
        let storage = match self.time {
            Time::Machine => self.harness.open(&self.namespace).await?,
            Time::Controlled(_) => match self.harness.open_on(&self.namespace, self.clock.clone()) {
                Some(opening) => opening.await?,
                None => return Err(anyqueue::Error::unsupported("a controlled clock")),
            },
        };
        storage.init().await?;
        Ok(Recorder::new(storage, name.into(), self.history.clone()))
    }

    /// Before a call gets its turn, everybody else who can go on queues up. So it makes no difference whether
    /// another thread answers the call at once or later.
    pub(super) async fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        let turn = self.turn.as_ref()?.lock().await;
        tokio::task::yield_now().await;
        Some(turn)
    }

    pub(super) fn lock_sent(&self) -> std::sync::MutexGuard<'_, Vec<MessageData>> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether no call is under way.
    fn idle(&self) -> bool {
        let free = self.turn.as_ref().is_none_or(|turn| turn.try_lock().is_ok());
        free && self.history.under_way().is_none()
    }

    /// Lets time pass, on a controlled clock, whenever nobody can go on without it.
    pub(super) async fn in_time<T>(&self, work: impl Future<Output = T>) -> T {
        let Time::Controlled(clock) = &self.time else { return work.await };
        let passing = pin!(async {
            loop {
                for _ in 0..TURNS {
                    tokio::task::yield_now().await;
                }
                if self.turn.is_none() || self.idle() {
                    clock.advance(BEAT);
                } else {
                    tokio::time::sleep(GLANCE).await;
                }
            }
        });
        let work = pin!(work);
        match select(work, passing).await {
            Either::Left((done, _)) => done,
            Either::Right((never, _)) => never,
        }
    }
}

pub(super) fn not_opened(error: &anyqueue::Error) -> Stuck {
    Stuck { clause: Clause::Init, about: None, expected: "another client to open", seen: error.to_string() }
}

/// Returns the partition that a plan refers to by number.
pub(super) fn partition(place: Place) -> PartitionId {
    const NAMES: [&str; PARTITIONS] = ["jobs.a", "jobs-a"];
    let name = NAMES.get(place.number).copied().unwrap_or("jobs");
    match PartitionId::new(name) {
        Ok(live) if place.dead => live.dead_letters(),
        Ok(live) => live,
        Err(_) => unreachable!("the names above are valid"),
    }
}
