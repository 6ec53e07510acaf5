//! How many tasks ended, and how long they took: asked for everybody who looks, one question at a time, and each step of time that is over once.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use anyqueue::adapter::minute_of;
use anyqueue::{Queue, SeriesQuery, SeriesRow};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::problem::Problem;
use crate::span::{Grain, Span, Step, moment_of};

/// The shortest pause between two questions about the same.
const EVERY: Duration = Duration::from_secs(5);
/// Questions that were asked before take at most this share of the time.
const SHARE: u32 = 10;
/// The longest that somebody waits for counts; what is missing then comes with a later look.
const DEADLINE: Duration = Duration::from_secs(2);
/// Of so many queues and kinds counts are kept: those that were looked at last.
const MAX_KEPT: usize = 200;
/// Ends are stored somewhat later than they happen, and by a clock that may be late: after so many minutes a step changes no more.
const SETTLES_MINUTES: u64 = 10;

/// What is kept: of a queue or one kind of its tasks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Of {
    partition: String,
    kind: Option<String>,
    grain: Grain,
}

/// What is known of that.
struct Known {
    /// Steps in which any task ended, by the minute in which they begin.
    steps: BTreeMap<u64, Step>,
    /// All is known from this minute on.
    from: u64,
    /// What is before this minute changes no more.
    settled: u64,
    /// Before this moment it is not asked for again, unless for a time before what was asked for.
    next: Instant,
    asked: u64,
    /// When somebody looked last.
    looked: Instant,
    /// Why the last question was not answered.
    problem: Option<String>,
}

impl Known {
    fn new(grain: Grain, now: u64, at: Instant) -> Self {
        let settled = settled(grain, now);
        let (steps, asked) = (BTreeMap::new(), u64::MAX);
        Self { steps, from: settled, settled, next: at, asked, looked: at, problem: None }
    }

    /// Reads what is new, and what is missing from this minute on as far as there is time.
    async fn look(&mut self, queue: &Queue, of: &Of, wanted: u64, now: u64, left: Left) {
        let at = queue.clock().now();
        self.looked = at;
        let is_new = self.asked > wanted;
        if left.time().is_zero() || (at < self.next.max(left.rest) && !is_new) {
            return;
        }
        // Before the answer: whoever asks may leave meanwhile.
        (self.next, self.asked) = (at + EVERY, self.asked.min(wanted));
        self.problem = self.read(queue, of, wanted, now, left).await.err();
    }

    async fn read(
        &mut self,
        queue: &Queue,
        of: &Of,
        wanted: u64,
        now: u64,
        left: Left,
    ) -> Result<(), String> {
        let this = now - now % of.grain.minutes();
        let is_old = self.settled.saturating_add(of.grain.asked_minutes()) < this;
        // Nobody has looked for long, or the clock was set back.
        if is_old || self.settled > this {
            *self = Self { next: self.next, asked: self.asked, ..Self::new(of.grain, now, self.looked) };
        }
        let rows = ask(queue, of, self.settled, None, left).await?;
        self.steps.retain(|at, _| *at < self.settled);
        self.add(&rows, of.grain, this);
        self.settled = self.settled.max(settled(of.grain, now));
        while self.from > wanted && !left.time().is_zero() {
            let first = self.from.saturating_sub(of.grain.asked_minutes()).max(wanted);
            let rows = ask(queue, of, first, Some(self.from), left).await?;
            self.add(&rows, of.grain, this);
            self.from = first;
        }
        let oldest = of.grain.longest().first(now);
        self.steps = self.steps.split_off(&oldest);
        self.from = self.from.max(oldest);
        Ok(())
    }

    fn add(&mut self, rows: &[SeriesRow], grain: Grain, this: u64) {
        for row in rows {
            let minute = minute_of(row.at);
            // The server's clock may be ahead.
            let at = (minute - minute % grain.minutes()).min(this);
            self.steps.entry(at).or_default().add(row);
        }
    }
}

/// The time that a look has.
#[derive(Clone, Copy, Debug)]
struct Left {
    begun: Instant,
    /// Until then nothing is asked again, as questions have taken long.
    rest: Instant,
}

impl Left {
    fn time(self) -> Duration {
        DEADLINE.saturating_sub(self.begun.elapsed())
    }
}

fn settled(grain: Grain, now: u64) -> u64 {
    let before = now.saturating_sub(SETTLES_MINUTES);
    before - before % grain.minutes()
}

async fn ask(
    queue: &Queue,
    of: &Of,
    first: u64,
    before: Option<u64>,
    left: Left,
) -> Result<Vec<SeriesRow>, String> {
    let mut query = SeriesQuery::since(moment_of(first)).by(of.grain.asked_by());
    query.before = before.map(moment_of);
    query.kind = of.kind.as_deref().map(Into::into);
    match timeout(left.time(), queue.series(of.partition.as_str(), &query)).await {
        Ok(rows) => rows.map_err(|error| Problem::from(error).detail),
        Err(_) => Err("the backend did not tell in time".to_owned()),
    }
}

/// What ended in a time.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) span: Span,
    /// All steps of the time, by the minute in which they begin; the last one goes on.
    pub(crate) steps: Vec<(u64, Step)>,
    /// Whether there was time to ask for all of it.
    pub(crate) is_whole: bool,
    /// The queues that could not be counted, and why.
    pub(crate) missing: Vec<(String, String)>,
}

/// Asks how many tasks ended, and keeps the answers.
pub(crate) struct EndCounts {
    queue: Queue,
    /// Held by whoever asks: others wait for the answer.
    answers: Mutex<Answers>,
}

struct Answers {
    known: HashMap<Of, Known>,
    rest: Instant,
}

impl EndCounts {
    pub(crate) fn new(queue: Queue) -> Self {
        let (known, rest) = (HashMap::new(), queue.clock().now());
        Self { queue, answers: Mutex::new(Answers { known, rest }) }
    }

    /// The tasks of these queues that ended, or those of one kind.
    pub(crate) async fn over(&self, span: Span, names: &[&str], kind: Option<&str>) -> Counted {
        let mut answers = self.answers.lock().await;
        let Answers { known: all, rest } = &mut *answers;
        let (clock, left) = (self.queue.clock(), Left { begun: Instant::now(), rest: *rest });
        let (begun, now) = (clock.now(), minute_of(clock.wall()));
        let (first, step) = (span.first(now), span.step_minutes());
        let mut steps: Vec<_> =
            (0..=span.whole_steps()).map(|number| (first + number * step, Step::default())).collect();
        let (mut is_whole, mut missing) = (true, Vec::new());
        for name in names {
            let (partition, kind) = ((*name).to_owned(), kind.map(str::to_owned));
            let of = Of { partition, kind, grain: span.grain() };
            make_room(all, &of);
            let known = all.entry(of.clone()).or_insert_with(|| Known::new(of.grain, now, begun));
            known.look(&self.queue, &of, first, now, left).await;
            for (at, found) in known.steps.range(first..) {
                let number = usize::try_from((at - first) / step).unwrap_or(usize::MAX);
                if let Some((_, sum)) = steps.get_mut(number) {
                    sum.merge(found);
                }
            }
            is_whole &= known.from <= first;
            missing.extend(known.problem.clone().map(|why| (of.partition, why)));
        }
        let ended = clock.now();
        *rest = (*rest).max(ended + ended.saturating_duration_since(begun) * SHARE);
        Counted { span, steps, is_whole, missing }
    }
}

/// Forgets what nobody has looked at for the longest time.
fn make_room(all: &mut HashMap<Of, Known>, of: &Of) {
    if all.len() < MAX_KEPT || all.contains_key(of) {
        return;
    }
    let oldest = all.iter().min_by_key(|(_, known)| known.looked).map(|(of, _)| of.clone());
    if let Some(oldest) = oldest {
        all.remove(&oldest);
    }
}

#[cfg(test)]
#[path = "../tests/http/counting.rs"]
#[allow(clippy::unwrap_used, reason = "a test may stop at anything")]
mod counting;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]
    use std::sync::Arc;

    use anyqueue::EndState::{Cancelled, Failed, Succeeded};

    use super::counting::Counting;
    use super::*;

    fn bed() -> (EndCounts, Arc<Counting>) {
        let (queue, ledger) = Counting::queue();
        (EndCounts::new(queue), ledger)
    }

    /// How many ended, and in which step before the last.
    async fn told(counts: &EndCounts, span: Span) -> Vec<(usize, u64)> {
        let counted = counts.over(span, &["p"], None).await;
        let steps = counted.steps.iter().rev().enumerate();
        steps.map(|(ago, (_, step))| (ago, step.tasks())).filter(|(_, tasks)| *tasks > 0).collect()
    }

    /// What was asked since this was asked last, in minutes before now.
    fn asked(ledger: &Counting) -> Vec<(i64, i64)> {
        let before = |minute: u64| i64::try_from(minute).unwrap() - i64::try_from(ledger.now()).unwrap();
        let asked = ledger.told(|told| std::mem::take(&mut told.asked));
        asked.into_iter().map(|(_, minutes)| (before(minutes.start), before(minutes.end))).collect()
    }

    #[tokio::test]
    async fn each_span_has_the_steps_that_end_now() {
        let (counts, ledger) = bed();
        for minutes in
            [0, 4, 59, 60, 61, 23 * 60, 24 * 60 + 10, 24 * 60 + 11, 7 * 24 * 60 + 70, 7 * 24 * 60 + 71]
        {
            ledger.ended("p", minutes, Succeeded, 1, (1, 1));
        }
        // It is ten past one.
        assert_eq!(told(&counts, Span::Hour).await, [(0, 1), (1, 1), (12, 2)]);
        assert_eq!(told(&counts, Span::Day).await, [(0, 2), (1, 3), (23, 1), (24, 1)]);
        assert_eq!(told(&counts, Span::Week).await, [(0, 5), (4, 3), (28, 1)]);
    }

    #[tokio::test]
    async fn what_has_passed_is_asked_for_once_and_nothing_within_a_pause() {
        let (counts, ledger) = bed();
        ledger.ended("p", 30, Succeeded, 3, (1, 1));
        told(&counts, Span::Hour).await;
        assert_eq!(asked(&ledger), [(-10, 5), (-60, -10)]);
        for _ in 0..20 {
            assert_eq!(told(&counts, Span::Hour).await, [(6, 3)]);
        }
        assert_eq!(asked(&ledger), []);
        ledger.clock.advance(Duration::from_mins(7));
        assert_eq!(told(&counts, Span::Hour).await, [(7, 3)]);
        assert_eq!(asked(&ledger), [(-17, 5)]);
        // A longer time is another question, and a shorter one within it none.
        told(&counts, Span::Week).await;
        assert_eq!(asked(&ledger).len(), 1 + 85);
        assert_eq!(told(&counts, Span::Day).await, [(1, 3)]);
        assert_eq!(asked(&ledger), []);
    }

    #[tokio::test]
    async fn what_is_stored_late_is_counted() {
        let (counts, ledger) = bed();
        told(&counts, Span::Hour).await;
        ledger.clock.advance(Duration::from_mins(9));
        ledger.ended("p", 14, Failed, 1, (1, 1));
        for _ in 0..2 {
            assert_eq!(told(&counts, Span::Hour).await, [(2, 1)], "once");
            ledger.clock.advance(EVERY);
        }
    }

    #[tokio::test]
    async fn questions_take_a_tenth_of_the_time() {
        let (counts, ledger) = bed();
        ledger.told(|told| told.takes = Duration::from_secs(3));
        told(&counts, Span::Hour).await;
        assert_eq!(asked(&ledger).len(), 2);
        for (seconds, questions) in [(59, 0), (2, 1)] {
            ledger.clock.advance(Duration::from_secs(seconds));
            told(&counts, Span::Hour).await;
            assert_eq!(asked(&ledger).len(), questions, "{seconds}");
        }
    }

    #[tokio::test]
    async fn a_ledger_that_fails_is_left_alone_and_what_was_known_stays() {
        let (counts, ledger) = bed();
        ledger.ended("p", 30, Succeeded, 3, (1, 1));
        told(&counts, Span::Hour).await;
        ledger.told(|told| told.problem = Some("it is away"));
        ledger.clock.advance(EVERY);
        asked(&ledger);
        for _ in 0..3 {
            let counted = counts.over(Span::Hour, &["p"], None).await;
            assert_eq!(counted.missing, [("p".to_owned(), "it is away".to_owned())]);
            assert_eq!(told(&counts, Span::Hour).await, [(6, 3)]);
        }
        assert_eq!(asked(&ledger).len(), 1);
        ledger.told(|told| told.problem = None);
        ledger.clock.advance(EVERY);
        assert_eq!(counts.over(Span::Hour, &["p"], None).await.missing, []);
    }

    #[tokio::test]
    async fn nobody_waits_for_a_ledger_that_hangs() {
        let (counts, ledger) = bed();
        ledger.told(|told| told.hangs = true);
        let counted = counts.over(Span::Day, &["p", "q"], None).await;
        let told: Vec<_> = counted.missing.iter().map(|(name, why)| (name.as_str(), why.as_str())).collect();
        assert_eq!(told, [("p", "the backend did not tell in time")]);
        assert!(!counted.is_whole, "there was no time for the other one");
        ledger.told(|told| told.hangs = false);
        assert!(counts.over(Span::Day, &["q"], None).await.is_whole);
    }

    #[tokio::test]
    async fn after_a_long_time_it_begins_anew() {
        let (counts, ledger) = bed();
        ledger.ended("p", 0, Succeeded, 1, (1, 1));
        told(&counts, Span::Day).await;
        ledger.clock.advance(Duration::from_hours(20));
        ledger.ended("p", 600, Cancelled, 1, (1, 1));
        asked(&ledger);
        assert_eq!(told(&counts, Span::Day).await, [(10, 1), (20, 1)]);
        assert!(asked(&ledger).iter().all(|(first, end)| end - first <= 135), "never much at once");
    }

    #[tokio::test]
    async fn no_more_is_kept_than_somebody_looks_at() {
        let (counts, ledger) = bed();
        for number in 0..MAX_KEPT + 10 {
            ledger.clock.advance(Duration::from_millis(1));
            counts.over(Span::Hour, &["p"], Some(&format!("kind {number}"))).await;
        }
        let answers = counts.answers.lock().await;
        let known = &answers.known;
        assert_eq!(known.len(), MAX_KEPT);
        let is_kept = |kind: &str| known.keys().any(|of| of.kind.as_deref() == Some(kind));
        assert!(!is_kept("kind 9") && is_kept("kind 10"));
    }
}
