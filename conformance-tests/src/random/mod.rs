//! Random plans: carried out, recorded, judged, and shrunk to a short witness if they show a fault.

mod actor;
mod ends;
mod generate;
mod plan;
mod run;
mod shrink;
mod stage;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::Capabilities;
use anyqueue::{ManualClock, MessageId};

use crate::check::Violation;
use crate::harness::Harness;
use crate::history::{Exported, Trace};
use crate::run::on_a_thread;
use crate::verdict::{CaseResult, Failure, Stop};
pub(crate) use generate::{Shape, is_coarse};
use plan::Plan;
pub(crate) use shrink::Budget;
use stage::{Stage, Time};

/// A kind of operation that a plan has this often must succeed once.
const OFTEN: usize = 20;

/// In this many plans together, each kind of operation must succeed once.
const MANY: u64 = 20;

/// A search for a plan that the backend does not carry out correctly.
pub(crate) struct Search {
    pub(crate) harness: Arc<dyn Harness>,
    pub(crate) capabilities: Capabilities,
    pub(crate) shape: Shape,
    /// Whether it runs on a clock that only the suite moves.
    pub(crate) controlled: bool,
    pub(crate) budget: Budget,
}

/// What one plan showed.
struct Found {
    /// The invariant's name, or the call that did not end.
    what: String,
    failure: Failure,
    late: bool,
}

impl Search {
    /// Tries plans, with this seed and those that follow it, as long as `more` says so. Returns how many were
    /// tried.
    ///
    /// # Errors
    /// Fails the case with the first plan that shows a fault, after shrinking it.
    pub(crate) async fn run(&self, seed: u64, more: impl Fn(u64) -> bool) -> CaseResult<u64> {
        let (mut tried, mut failed) = (0, BTreeSet::new());
        let mut succeeded = BTreeSet::new();
        while more(tried) {
            let plan = generate::plan(seed.wrapping_add(tried), self.shape, &self.capabilities);
            let trace = match self.attempt(&plan).await {
                Ok(trace) => trace,
                Err(found) => return Err(self.witness(plan, *found).await),
            };
            let (done, not) = plan.kinds(1).into_iter().partition(|kind| trace.succeeded(kind));
            succeeded.extend::<Vec<_>>(done);
            failed.extend::<Vec<_>>(not);
            tried += 1;
        }
        match failed.difference(&succeeded).next().filter(|_| tried >= MANY) {
            Some(kind) => Err(Stop::Inconclusive(format!("in {tried} plans no {kind} succeeded"))),
            None => Ok(tried),
        }
    }

    /// Returns the history of one plan, which must be correct.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub(crate) async fn trace(&self, seed: u64) -> CaseResult<Trace> {
        let plan = generate::plan(seed, self.shape, &self.capabilities);
        match self.attempt(&plan).await {
            Ok(trace) => Ok(trace),
            Err(found) => Err(self.witness(plan, *found).await),
        }
    }

    async fn attempt(&self, plan: &Plan) -> Result<Trace, Box<Found>> {
        let time = if self.controlled { Time::Controlled(ManualClock::new()) } else { Time::Machine };
        let stage = Stage::new(self.harness.clone(), &self.capabilities, time, self.shape.waits, plan);
        let lines = |about: &[MessageId]| stage.history.lines(about);
        let Exported { mut trace, messages, .. } = run::run(&stage, plan).await.map_err(|stuck| {
            let about = Vec::from_iter(stuck.about);
            let (expected, seen) = (stuck.expected.to_owned(), stuck.seen);
            let failure =
                Failure { clause: stuck.clause, expected, seen, history: lines(&about), likely: Vec::new() };
            Box::new(Found { what: stuck.expected.to_owned(), failure, late: false })
        })?;
        // When its turn comes, a process may not hold what a plan wants to settle: that shows nothing.
        let was_tried = |kind: &String| trace.settlements(kind).is_none_or(|tries| tries >= OFTEN);
        trace.head.planned = plan.kinds(OFTEN).into_iter().filter(was_tried).collect();
        let (verdict, trace) = judged(trace).await;
        let Err(violation) = verdict else { return Ok(trace) };
        let about: Vec<_> =
            violation.about.iter().filter_map(|number| messages.get(*number).copied()).collect();
        let mut history = lines(&about);
        if !about.is_empty() {
            history.push("the whole history:".to_owned());
            history.extend(lines(&[]));
        }
        let failure = Failure {
            clause: violation.clause,
            expected: violation.expected,
            seen: violation.seen,
            history,
            likely: Vec::new(),
        };
        Err(Box::new(Found { what: violation.invariant.to_owned(), failure, late: violation.late }))
    }

    async fn witness(&self, plan: Plan, found: Found) -> Stop {
        let (seed, steps) = (plan.seed, plan.steps.len());
        let what = found.what.clone();
        let (shortest, mut found) = shrink::shrink(plan, found, self.budget, async |shorter: &Plan| {
            let found = self.attempt(shorter).await.err()?;
            (found.what == what).then_some(*found)
        })
        .await;
        found.failure.seen = format!(
            "{} ({}; seed {seed}, shrunk from {steps} steps to {})",
            found.failure.seen,
            found.what,
            shortest.steps.len()
        );
        let stop = Stop::Fail(Box::new(found.failure));
        if found.late { stop.late() } else { stop }
    }
}

/// Returns the verdict on a history, and leaves the thread to others meanwhile.
async fn judged(trace: Trace) -> (std::result::Result<(), Violation>, Trace) {
    let check = move || (trace.check(), trace);
    on_a_thread("history checker", check).await.unwrap_or_else(|error| panic!("{error}"))
}

/// Does the work on a thread and a runtime of its own, where nothing else gets a turn.
pub(crate) async fn apart<T, F>(work: impl FnOnce() -> F + Send + 'static) -> CaseResult<T>
where
    T: Send + 'static,
    F: Future<Output = CaseResult<T>>,
{
    let thread = on_a_thread("random plans", move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Stop::Inconclusive(format!("no runtime: {error}")))?;
        runtime.block_on(work())
    });
    thread.await.unwrap_or_else(|error| Err(Stop::Inconclusive(error)))
}

/// Continues until the time is over, and at least once.
pub(crate) fn during(time: Duration) -> impl Fn(u64) -> bool {
    let end = Instant::now() + time;
    move |tried| tried == 0 || Instant::now() < end
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::path::Path;
    use std::sync::Mutex;

    use anyqueue::adapter::{Storage, async_trait};
    use anyqueue::{Clock, Result};
    use anyqueue_memory::{MemoryConfig, MemoryQueue};

    use super::*;
    use crate::harness::Opening;

    /// The memory backend.
    #[derive(Default)]
    struct Memory(Mutex<HashMap<String, MemoryQueue>>);

    impl Memory {
        /// Creates a client. If this is the storage's first client, the storage runs on this clock.
        fn client(&self, namespace: &str, clock: Clock) -> Arc<dyn Storage> {
            let make = || MemoryQueue::with_config(MemoryConfig::default().with_clock(clock));
            Arc::new(self.0.lock().unwrap().entry(namespace.to_owned()).or_insert_with(make).client())
        }
    }

    #[async_trait]
    impl Harness for Memory {
        fn name(&self) -> &'static str {
            "memory"
        }

        async fn open(&self, namespace: &str) -> Result<Arc<dyn Storage>> {
            Ok(self.client(namespace, Clock::system()))
        }

        fn open_on(&self, namespace: &str, clock: Clock) -> Option<Opening<'_>> {
            let client = self.client(namespace, clock);
            Some(Box::pin(async move { Ok(client) }))
        }
    }

    async fn search(waits: bool) -> Search {
        let harness = Arc::new(Memory::default());
        let capabilities = harness.open("any").await.unwrap().capabilities().clone();
        let shape = Shape { processes: 3, steps: 60, waits };
        let budget = Budget { attempts: 0, time: Duration::ZERO };
        Search { harness, capabilities, shape, controlled: true, budget }
    }

    /// The corpus has this many of the first histories.
    const RECORDED: u64 = 3;

    /// With `ANYQUEUE_CONFORMANCE_RECORD=1` it also writes them into `corpus/good`.
    #[tokio::test]
    async fn runs_of_memory_are_right_and_read_back_the_same() {
        for seed in 1..=20 {
            let text = search(seed != 2).await.trace(seed).await.unwrap().to_jsonl();
            assert_eq!(Trace::from_jsonl(&text).unwrap().to_jsonl(), text);
            if seed <= RECORDED && std::env::var_os("ANYQUEUE_CONFORMANCE_RECORD").is_some() {
                let name = format!("corpus/good/memory_seed_{seed}.jsonl");
                std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(name), text).unwrap();
            }
        }
    }

    #[tokio::test]
    async fn the_same_seed_makes_the_same_history() {
        let search = search(true).await;
        let (first, second) = (search.trace(7).await.unwrap(), search.trace(7).await.unwrap());
        assert_eq!(first.to_jsonl(), second.to_jsonl());
        assert_ne!(first, search.trace(8).await.unwrap());
    }

    #[tokio::test]
    async fn a_plan_that_never_holds_what_it_wants_to_settle_with_successors_shows_no_fault() {
        let mut search = search(true).await;
        search.shape = Shape { processes: 4, steps: 120, waits: true };
        let plan = generate::plan(647_203, search.shape, &search.capabilities);
        assert!(plan.kinds(OFTEN).contains(&"successors".to_owned()), "the seed no longer makes such a plan");
        let trace = search.trace(plan.seed).await.unwrap();
        assert!(trace.settlements("successors") < Some(OFTEN), "the seed no longer makes such a plan");
    }
}
