//! Where each task is in the end, and whether it may be there.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::adapter::{Capabilities, MoveGuarantee};
use anyqueue::{IntoPartitionId, MessageId, Queue, TaskFilter, TaskState};
use futures_util::TryStreamExt;

use crate::actors::{Line, Saying};
use crate::grounds::PARTITION;
use crate::steps::Step;

/// How long what is still there may take to come.
const LAST: Duration = Duration::from_secs(1);

/// Where a task was found, as often as it was.
#[derive(Clone, Copy, Debug, Default)]
struct Places {
    ended: usize,
    dead: usize,
    live: usize,
}

/// One run of a task.
#[derive(Clone, Copy, Debug)]
struct Run {
    process: usize,
    at: Instant,
}

/// What was pushed, run and found.
#[derive(Default)]
pub(crate) struct Account {
    pushed: BTreeSet<MessageId>,
    acknowledged: BTreeSet<MessageId>,
    runs: BTreeMap<MessageId, Vec<Run>>,
    /// What was in the hands of processes that stood still behind a step, from when on.
    stood: Vec<(Step, Instant, Vec<MessageId>)>,
    /// Processes that were killed, or whose queue was, until when.
    harmed: HashMap<usize, Instant>,
    places: BTreeMap<MessageId, Places>,
}

impl Account {
    pub(crate) fn pushed(&mut self, all: &[MessageId], acknowledged: &[MessageId]) {
        self.pushed.extend(all);
        self.acknowledged.extend(acknowledged);
    }

    /// These processes were killed, or the server of the queue under them, and all that they said before is heard.
    pub(crate) fn harmed(&mut self, processes: impl IntoIterator<Item = usize>) {
        let now = Instant::now();
        self.harmed.extend(processes.into_iter().map(|process| (process, now)));
    }

    /// Takes in what the processes said.
    pub(crate) fn heard(&mut self, lines: &[Line]) {
        for Line { process, saying, ids, at } in lines {
            let run = Run { process: *process, at: *at };
            match saying {
                Saying::Pushes => self.pushed.extend(ids),
                Saying::Pushed => self.acknowledged.extend(ids),
                Saying::Begins => ids.iter().for_each(|id| self.runs.entry(*id).or_default().push(run)),
                Saying::Stands(step) => self.stood.push((*step, *at, ids.clone())),
                Saying::GoesOn => {}
            }
        }
    }

    /// Looks for all tasks: by the ledger, among the dead letters, and in the queue past its ledger. What comes is removed.
    pub(crate) async fn find(&mut self, queue: &Queue, bare: &Queue) {
        let mut tasks = queue.tasks(PARTITION, TaskFilter::new()).unwrap();
        let mut waits = BTreeSet::new();
        while let Some(task) = tasks.try_next().await.unwrap() {
            // What a ledger beside the queue was told of a dead one does not have it.
            let is_end = task.message.is_none() && task.waited.is_some();
            if is_end && task.state == TaskState::Succeeded {
                self.places.entry(task.id).or_default().ended += 1;
            } else if task.state.ended().is_none() {
                waits.insert(task.id);
            } else {
                assert_eq!(task.state, TaskState::Failed, "{task:?}");
            }
        }
        let both = self.places.keys().filter(|id| waits.contains(*id)).count();
        assert_eq!(both, 0, "tasks have ended and are told to wait");
        let dead = queue.dead_letters(PARTITION).unwrap().partition().clone();
        for id in drained(bare, dead).await {
            self.places.entry(id).or_default().dead += 1;
        }
        for id in drained(bare, PARTITION).await {
            self.places.entry(id).or_default().live += 1;
        }
    }

    /// Returns the account, for people.
    pub(crate) fn check(&self, backend: &str, declared: &Capabilities) -> serde_json::Value {
        self.check_places(declared);
        let again = self.check_runs(declared);
        let sum = |of: fn(&Places) -> usize| self.places.values().map(of).sum::<usize>();
        serde_json::json!({
            "backend": backend, "acknowledged": self.acknowledged.len(), "unknown": self.pushed.len() - self.acknowledged.len(),
            "ended": sum(|it| it.ended), "dead": sum(|it| it.dead), "live": sum(|it| it.live), "ran_again": again,
        })
    }

    fn check_places(&self, declared: &Capabilities) {
        let lost: Vec<_> = self.acknowledged.iter().filter(|id| !self.places.contains_key(*id)).collect();
        assert_eq!(lost, [] as [&MessageId; 0], "acknowledged pushes are nowhere");
        let strange = self.places.keys().find(|id| !self.pushed.contains(*id));
        assert_eq!(strange, None, "nobody pushed it");
        let is_atomic = declared.ledger == Some(MoveGuarantee::Atomic) && declared.unique_ids;
        for (id, places) in &self.places {
            let runs = self.runs.get(id).map_or(0, Vec::len);
            // A dead letter whose move was cut off in its middle comes again, and dies again, where that is declared.
            let is_cut = !is_atomic && places.ended + places.live == 0 && places.dead <= runs;
            let count = places.ended + places.dead + places.live;
            assert!(count == 1 || is_cut, "{id} is in {places:?} after {runs} runs");
        }
        let found = |of: fn(&Places) -> usize| self.places.values().any(|places| of(places) > 0);
        assert!(found(|it| it.ended) && found(|it| it.dead), "nothing to prove");
    }

    /// A task runs again only if whoever ran it was killed, or the queue under it, before its end was stored. Returns how often that was.
    fn check_runs(&self, declared: &Capabilities) -> usize {
        let is_beside = declared.ledger != Some(MoveGuarantee::Atomic);
        for (step, at, ids) in &self.stood {
            let has_ended = *step == Step::Settled || is_beside && *step == Step::Settling;
            for id in ids.iter().filter(|_| has_ended) {
                let again = self.runs.get(id).into_iter().flatten().find(|run| run.at > *at);
                assert!(again.is_none(), "{id} had ended when a process stood at {step}, and ran again");
            }
        }
        let excused = |run: &&Run| self.harmed.get(&run.process).is_some_and(|until| run.at <= *until);
        for (id, runs) in &self.runs {
            let left = runs.len() - runs.iter().filter(excused).count();
            assert!(left <= 1, "{id} ran again though nobody was killed: {runs:?}");
        }
        let unrun = self.places.iter().find(|(id, places)| places.live == 0 && !self.runs.contains_key(*id));
        assert!(unrun.is_none(), "it never ran: {unrun:?}");
        let again = self.runs.values().map(|runs| runs.len() - 1).sum();
        assert!(again > 0, "no kill hit anything: this run proves nothing");
        again
    }
}

/// What is in a partition. It is removed.
async fn drained(queue: &Queue, partition: impl IntoPartitionId + Clone) -> Vec<MessageId> {
    let mut ids = Vec::new();
    loop {
        let mut held = queue.pull(partition.clone()).max(100).wait(LAST).await.unwrap();
        if held.is_empty() {
            return ids;
        }
        ids.extend(held.iter().map(anyqueue::Delivery::id));
        for outcome in queue.settle_many(held.iter_mut().map(|held| (held, Processed))).await {
            outcome.unwrap();
        }
    }
}
