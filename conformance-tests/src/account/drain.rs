//! Takes everything out of a storage, so that the history says what became of each message.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, PullRequest, Storage};
use anyqueue::{Amend, Clock, MAX_PAGE, MessageId, PartitionId, SettleOutcome};

use crate::check::{Rules, Timeline};
use crate::clause::Clause;
use crate::context::{Timing, settlement};
use crate::history::{History, Op};

/// The drain does not wait for a message that is due later than this: the case should have removed it. The
/// longest leases of random plans, for backends that count in seconds, are 30 s.
const MAX_WAIT: Duration = Duration::from_secs(35);

/// The pause between two checks.
const LOOK: Duration = Duration::from_millis(50);

/// If messages still come after this long, they would come forever.
const ENDLESS: Duration = Duration::from_mins(2);

fn endless() -> Stuck {
    Stuck {
        clause: Clause::SettleActions,
        about: None,
        expected: "nothing more to come once everything was removed",
        seen: format!("deliveries for {ENDLESS:?}"),
    }
}

/// A drain: a client of the storage, which writes what it does into the history.
pub(crate) struct Drain<'a> {
    pub(crate) storage: &'a dyn Storage,
    pub(crate) history: &'a History,
    pub(crate) clock: &'a Clock,
    pub(crate) rules: &'a Rules,
}

/// Why a drain could not go on.
pub(crate) struct Stuck {
    pub(crate) clause: Clause,
    pub(crate) about: Option<MessageId>,
    pub(crate) expected: &'static str,
    pub(crate) seen: String,
}

impl Drain<'_> {
    /// Removes whatever comes, until nothing more is due, or until everything due should have come.
    pub(crate) async fn run(&self) -> Result<(), Stuck> {
        let timing = Timing::of(self.storage.capabilities());
        self.restore().await;
        let (start, begun) = (self.clock.now(), Instant::now());
        let (known, due) = self.outstanding();
        let deadline = start + due.min(MAX_WAIT) + timing.soon;
        loop {
            if self.sweep(&known.partitions, timing.long_lease).await? > 0 {
                if begun.elapsed() > ENDLESS {
                    return Err(endless());
                }
                // A storage that never waits would leave no turn to others, and could not be stopped.
                tokio::task::yield_now().await;
                continue;
            }
            if !self.outstanding().0.owed || self.clock.now() > deadline {
                break;
            }
            self.clock.sleep(LOOK).await;
        }
        let ticket = self.history.begin(&"drain".into(), Op::Drained);
        self.history.end(ticket, 0, |_| ());
        Ok(())
    }

    /// Makes amended messages ready. The drain shows what comes of that.
    async fn restore(&self) {
        let Some(amend) = self.storage.amend() else { return };
        let exported = self.history.export(self.rules.clone());
        let timeline = Timeline::of(&exported.trace);
        let owed = timeline.owed();
        for partition in &timeline.partitions {
            let amended = owed.iter().filter(|number| {
                let life = timeline.lives.get(number);
                life.is_some_and(|life| life.amendments.iter().any(|it| it.place == partition))
            });
            let ids: Vec<_> = amended.filter_map(|number| exported.messages.get(*number).copied()).collect();
            for page in ids.chunks(MAX_PAGE) {
                amend.amend(partition, page, &Amend::new().now().enable()).await;
            }
        }
    }

    /// Returns what is left, and how long until the last of it becomes available.
    fn outstanding(&self) -> (Known, Duration) {
        let trace = self.history.export(self.rules.clone()).trace;
        let timeline = Timeline::of(&trace);
        let due = timeline.due_by().saturating_sub(self.history.elapsed());
        (Known { owed: timeline.owed().len() > timeline.purged(), partitions: timeline.partitions }, due)
    }

    async fn sweep(&self, partitions: &BTreeSet<PartitionId>, lease: Duration) -> Result<usize, Stuck> {
        let limits = self.storage.capabilities().limits;
        let mut found = 0;
        for partition in partitions {
            let request = PullRequest::new(limits.pull_batch, Duration::ZERO, lease);
            let stuck = |error: anyqueue::Error| Stuck {
                clause: Clause::PullBounds,
                about: None,
                expected: "deliveries, or none",
                seen: format!("the error {error}"),
            };
            let got = self.storage.pull(partition, request).await.map_err(stuck)?;
            found += got.len();
            let settlements: Vec<_> =
                got.iter().map(|delivery| settlement(delivery, Action::Remove)).collect();
            for batch in settlements.chunks(limits.settle_batch.max(1)) {
                let outcomes = self.storage.settle(batch).await;
                let wrong = |(_, outcome): &(_, _)| !matches!(outcome, Ok(SettleOutcome::Settled));
                if let Some((settlement, outcome)) = batch.iter().zip(outcomes).find(wrong) {
                    return Err(Stuck {
                        clause: Clause::SettleOutcomes,
                        about: Some(settlement.lease.id),
                        expected: "the drain's removal to be Settled",
                        seen: format!("{outcome:?}"),
                    });
                }
            }
        }
        Ok(found)
    }
}

struct Known {
    owed: bool,
    partitions: BTreeSet<PartitionId>,
}
