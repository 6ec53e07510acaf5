//! How many tasks ended, and how long they took: asked on behalf of everybody who looks, one question at a
//! time; each step of time that is over is asked for once.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyqueue::adapter::minute_of;
use anyqueue::{Clock, ErrorKind, Queue, SeriesQuery, SeriesRow};
use tokio::time::timeout;

use self::answers::{Answers, Due, Of};
use self::known::Question;
use crate::problem::Problem;
use crate::span::{Span, Step, moment_of};

mod answers;
mod known;

/// The longest that a caller waits for counts; what is missing then comes with a later look.
const DEADLINE: Duration = Duration::from_secs(2);
/// The least time for a question: with less left, none is begun.
const LEAST: Duration = Duration::from_millis(500);
/// The most queues, and the most kinds, whose counts are kept.
const MAX_QUEUES: usize = 200;
const MAX_KINDS: usize = 50;

/// The tasks that ended in a span of time.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) span: Span,
    /// All steps of the span, by the minute in which they begin; the last one is not over yet.
    pub(crate) steps: Vec<(u64, Step)>,
    /// Whether there was time to ask for all of it, and recently.
    pub(crate) is_whole: bool,
    /// The queues that could not be counted, and why.
    pub(crate) missing: Vec<(String, String)>,
}

/// Asks how many tasks ended, and keeps the answers.
pub(crate) struct EndCounts {
    queue: Queue,
    queues: Kept,
    /// Anybody can make up kinds: they have a turn, a share of the time and room of their own, and keep
    /// nobody from seeing queues.
    kinds: Kept,
}

struct Kept {
    /// Held by whoever asks: others wait for the answer.
    turn: tokio::sync::Mutex<()>,
    answers: Mutex<Answers>,
}

impl Kept {
    fn new(room: usize, at: Instant) -> Self {
        Self { turn: tokio::sync::Mutex::default(), answers: Mutex::new(Answers::new(room, at)) }
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One look at the counts.
struct Look<'a> {
    clock: &'a Clock,
    begun: Instant,
    /// The same by the runtime's clock: a test may have turned the queue's clock, or stopped it.
    real: tokio::time::Instant,
    /// The current minute, and the first that is wanted.
    now: u64,
    first: u64,
}

impl<'a> Look<'a> {
    fn begin(clock: &'a Clock, span: Span) -> Self {
        let now = minute_of(clock.wall());
        Self { clock, begun: clock.now(), real: tokio::time::Instant::now(), now, first: span.first(now) }
    }

    fn passed(&self) -> Duration {
        self.clock.now().saturating_duration_since(self.begun).max(self.real.elapsed())
    }

    fn left(&self) -> Duration {
        DEADLINE.saturating_sub(self.passed())
    }
}

/// Records the time that a question takes, even if the caller leaves before the answer: the backend goes on
/// with it.
struct Spending<'a> {
    kept: &'a Kept,
    clock: &'a Clock,
    is_new: bool,
    begun: Instant,
}

impl Drop for Spending<'_> {
    fn drop(&mut self) {
        self.kept.answers().spent(self.is_new, self.begun, self.clock.now());
    }
}

/// Why there is no answer.
struct Failure {
    why: String,
    /// Whether a question about a shorter time may be answered.
    is_too_much: bool,
}

impl EndCounts {
    pub(crate) fn new(queue: Queue) -> Self {
        let at = queue.clock().now();
        Self { queue, queues: Kept::new(MAX_QUEUES, at), kinds: Kept::new(MAX_KINDS, at) }
    }

    /// Returns the ended tasks of these queues, or those of one kind: what is known after at most two
    /// seconds.
    pub(crate) async fn over(&self, span: Span, names: &[&str], kind: Option<&str>) -> Counted {
        let kept = if kind.is_some() { &self.kinds } else { &self.queues };
        let look = Look::begin(self.queue.clock(), span);
        let of = |name: &&str| Of {
            partition: (*name).to_owned(),
            kind: kind.map(str::to_owned),
            grain: span.grain(),
        };
        let all: Vec<Of> = names.iter().map(of).collect();
        kept.answers().look_at(&all, look.now, look.begun);
        self.ask_in_turn(kept, &all, &look).await;
        counted(&kept.answers(), &all, span, &look)
    }

    /// Asks about what is due, if its turn comes in time. What was asked about longest ago comes first, so
    /// that everything gets its turn.
    async fn ask_in_turn(&self, kept: &Kept, all: &[Of], look: &Look<'_>) {
        let due = || kept.answers().due(all, look.first, look.clock.now());
        if due().is_empty() {
            return;
        }
        let Ok(_turn) = timeout(look.left(), kept.turn.lock()).await else { return };
        // Others may have asked about it meanwhile.
        let due = due();
        for (number, due_now) in due.iter().enumerate() {
            if look.left() < LEAST {
                return;
            }
            let share = look.left() / u32::try_from(due.len() - number).unwrap_or(u32::MAX);
            self.ask_within(kept, due_now, look, share).await;
        }
    }

    /// Asks about one queue or kind until everything is known or its share of the time is over; there is time
    /// for one question in any case.
    async fn ask_within(&self, kept: &Kept, due: &Due, look: &Look<'_>, share: Duration) {
        let begun = look.passed();
        kept.answers().begin(&due.of, look.first, look.now, look.clock.now());
        loop {
            let Some(question) = kept.answers().question(&due.of, look.first, look.now) else { return };
            let rest = share.saturating_sub(look.passed().saturating_sub(begun));
            let allowed = rest.max(LEAST).min(look.left());
            let (clock, is_new) = (look.clock, due.is_new);
            let spending = Spending { kept, clock, is_new, begun: clock.now() };
            let answer = ask(&self.queue, &due.of, question, allowed).await;
            drop(spending);
            let goes_on = kept.answers().of(&due.of).is_some_and(|known| match answer {
                Ok(rows) => known.answered(question, &rows, look.now, clock.now()),
                Err(failure) => known.failed(question, failure.why, failure.is_too_much, look.now),
            });
            if !goes_on || look.passed().saturating_sub(begun) >= share || look.left() < LEAST {
                return;
            }
        }
    }
}

async fn ask(
    queue: &Queue,
    of: &Of,
    question: Question,
    allowed: Duration,
) -> Result<Vec<SeriesRow>, Failure> {
    let mut query = SeriesQuery::since(moment_of(question.first)).by(of.grain.asked_by());
    query.before = question.before.map(moment_of);
    query.kind = of.kind.as_deref().map(Into::into);
    match timeout(allowed, queue.series(of.partition.as_str(), &query)).await {
        Ok(Ok(rows)) => Ok(rows),
        Ok(Err(error)) => {
            let is_too_much = matches!(error.kind(), ErrorKind::TooLarge | ErrorKind::TimedOut);
            Err(Failure { why: Problem::from(error).detail, is_too_much })
        }
        Err(_) => Err(Failure { why: "the backend did not tell in time".to_owned(), is_too_much: true }),
    }
}

/// Adds up what is known of all of them.
fn counted(answers: &Answers, all: &[Of], span: Span, look: &Look<'_>) -> Counted {
    let (first, step) = (look.first, span.step_minutes());
    let mut steps: Vec<_> =
        (0..=span.whole_steps()).map(|number| (first + number * step, Step::default())).collect();
    let (mut is_whole, mut missing) = (true, Vec::new());
    for of in all {
        let Some(known) = answers.known.get(of) else {
            is_whole = false;
            continue;
        };
        for (at, found) in known.steps_since(first) {
            let number = usize::try_from((at - first) / step).unwrap_or(usize::MAX);
            if let Some((_, sum)) = steps.get_mut(number) {
                sum.merge(found);
            }
        }
        is_whole &= known.is_whole(first, look.clock.now());
        missing.extend(known.problem.clone().map(|why| (of.partition.clone(), why)));
    }
    Counted { span, steps, is_whole, missing }
}

#[cfg(test)]
#[path = "../../tests/http/counting.rs"]
#[allow(clippy::unwrap_used, reason = "a test may stop at anything")]
mod counting;

#[cfg(test)]
mod tests;
