//! Turns a case into its verdict.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::{Clock, Error};

use crate::account;
use crate::case::Case;
use crate::clause::Clause;
use crate::context::Context;
use crate::harness::Harness;
use crate::need::{Need, Offer};
use crate::options::Options;
use crate::verdict::{CaseResult, Outcome, Stop};

/// The account of a case waits for outstanding messages; beyond this time it counts as hung.
pub(super) const ACCOUNT_DEADLINE: Duration = Duration::from_mins(1);

/// A backend that takes longer than this to open counts as hung. Some start a server first.
const TO_OPEN: Duration = Duration::from_mins(3);

/// When a case counts as hung.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// A call counts as hung if it takes this much longer than it was asked to wait. If the case disrupts a
    /// server of its own, a client may take longer to notice, so such a case has only its deadline.
    hung: Duration,
    /// A case at its deadline counts as hung if no call has begun or ended for this long; otherwise the
    /// server is slow.
    standstill: Duration,
    /// The time between two checks for a hung call.
    look: Duration,
}

const PATIENCE: Patience = Patience {
    hung: Duration::from_secs(20),
    standstill: Duration::from_secs(5),
    look: Duration::from_millis(500),
};

/// From its second attempt on, a case is not run again once its attempts have taken this long: then everything
/// is slow.
const AGAIN_WITHIN: Duration = Duration::from_secs(15);

/// The outcome of a case, and the number of attempts.
pub(super) type Judged = (Outcome, u32);

/// Runs one case in this runtime, and again if it proves nothing.
pub(super) async fn verdict(harness: Arc<dyn Harness>, case: &'static Case, options: &Options) -> Judged {
    until_conclusive(options.attempts, AGAIN_WITHIN, || once(harness.clone(), case, options)).await
}

/// How one attempt ended.
enum Attempt {
    Conclusive(Outcome),
    /// Another attempt may end differently.
    Open(Outcome),
}

impl From<Stop> for Attempt {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Late(_) | Stop::Inconclusive(_) => Self::Open(stop.into()),
            Stop::Fail(_) | Stop::NotApplicable(_) => Self::Conclusive(stop.into()),
        }
    }
}

async fn until_conclusive<F: Future<Output = Attempt>>(
    most: u32,
    within: Duration,
    run: impl Fn() -> F,
) -> Judged {
    let start = Instant::now();
    let mut attempts = 0;
    loop {
        attempts += 1;
        match run().await {
            Attempt::Conclusive(outcome) => return (outcome, attempts),
            Attempt::Open(outcome) => {
                if attempts >= most || (attempts > 1 && start.elapsed() > within) {
                    return (outcome, attempts);
                }
            }
        }
    }
}

async fn once(harness: Arc<dyn Harness>, case: &'static Case, options: &Options) -> Attempt {
    let opening = Context::open(harness, case.id, case.needs_offer(Offer::FaultTarget), options);
    let opened = tokio::time::timeout(TO_OPEN, opening).await;
    match opened.unwrap_or_else(|_| Err(Error::invalid(format!("it did not within {TO_OPEN:?}")))) {
        Ok(context) => {
            let mut attempt = judge(&context, case, options).await;
            if let Attempt::Conclusive(Outcome::Fail(failure)) | Attempt::Open(Outcome::Fail(failure)) =
                &mut attempt
            {
                failure.likely = case.kills.iter().map(|fault| fault.what()).collect();
            }
            context.close().await;
            attempt
        }
        Err(error) => {
            let seen = error.to_string();
            Attempt::Conclusive(Outcome::broken(Clause::Init, "the backend to open and initialise", &seen))
        }
    }
}

async fn judge(context: &Arc<Context>, case: &'static Case, options: &Options) -> Attempt {
    if let Some(unmet) = unmet(context, case, options) {
        return Attempt::Conclusive(unmet);
    }
    let run = case.run;
    let in_case = context.clone();
    let body = within(context, case.time_limit(options), async move { run(&in_case).await }).await;
    let observations = context.history().observations();
    if let Err(stop) = body {
        return stop.into();
    }
    if observations == 0 {
        return Stop::Inconclusive("the case ran to its end but observed nothing".to_owned()).into();
    }
    match account_for(context).await {
        Ok(()) => Attempt::Conclusive(Outcome::Pass),
        Err(stop) => stop.into(),
    }
}

/// Closes the account of a case. The time to read the history is not the backend's fault: it has no deadline.
async fn account_for(context: &Arc<Context>) -> CaseResult {
    let drains = context.clone();
    let drained = within(context, ACCOUNT_DEADLINE, async move { account::drain(&drains).await }).await?;
    let drained = account::judge(context, drained).await?;
    let looks = context.clone();
    within(context, ACCOUNT_DEADLINE, async move { account::empty(&looks, &drained).await }).await
}

fn unmet(context: &Context, case: &Case, options: &Options) -> Option<Outcome> {
    let missing = |need: &&Need| !need.is_declared(context.capabilities());
    if let Some(need) = case.needs.iter().find(missing) {
        return Some(context.undeclared(*need));
    }
    let withheld = |need: &&Need| match need.offer() {
        Some(Offer::Children) => !options.children || !context.can_spawn(),
        Some(Offer::FaultTarget) => context.fault_target().is_none(),
        Some(Offer::Clock) => context.harness().open_on("probe", Clock::system()).is_none(),
        Some(Offer::Skew) => context.harness().open_skewed("probe", Clock::system()).is_none(),
        Some(Offer::Foreign) => !context.stores_bytes(),
        Some(Offer::Corruption) => !context.harness().corrupts(),
        None => false,
    };
    let need = *case.needs.iter().find(withheld)?;
    let rule = match need.offer() {
        Some(Offer::Foreign) => "it keeps the fields of messages, so bytes of others cannot be in it",
        Some(Offer::Corruption) => "it keeps no message in a form that could be damaged",
        Some(Offer::Skew) => {
            context.harness().rule(need).unwrap_or("its harness gives no client a clock of its own")
        }
        _ => return Some(Outcome::not_offered(need.what())),
    };
    Some(Outcome::NotApplicable { needs: need.what().to_owned(), declared: true, rule: Some(rule) })
}

/// Runs a part of a case in a task of its own, so that a panic becomes a verdict, and with a deadline, so
/// that a hang does.
async fn within<T: Send + 'static>(
    context: &Context,
    deadline: Duration,
    part: impl Future<Output = CaseResult<T>> + Send + 'static,
) -> CaseResult<T> {
    let task = tokio::spawn(part);
    let abort = task.abort_handle();
    let ended = tokio::select! {
        biased;
        ended = task => ended,
        stop = overdue(context, deadline, PATIENCE) => {
            abort.abort();
            return Err(stop);
        }
    };
    match ended {
        Ok(answer) => answer,
        Err(panic) => Err(context.failed(Clause::Recovery, &[], "no panic", panic.to_string())),
    }
}

/// Returns why the case cannot go on: a call hangs, or its time is over.
async fn overdue(context: &Context, deadline: Duration, patience: Patience) -> Stop {
    let Patience { hung, standstill, look } = patience;
    let (start, history) = (Instant::now(), context.history());
    let hangs = |seen| context.failed(Clause::Recovery, &[], "every call to end in bounded time", seen);
    loop {
        let left = deadline.saturating_sub(start.elapsed());
        if left.is_zero() {
            break;
        }
        tokio::time::sleep(look.min(left)).await;
        if let Some(call) = history.overdue(hung).filter(|_| context.fault_target().is_none()) {
            return hangs(format!("hung for {hung:?} longer than it was asked to wait: {call}"));
        }
    }
    let last = history.under_way();
    let stands = history.quiet_for() > standstill;
    match (stands, last) {
        (true, Some(call)) => hangs(format!("hung after {deadline:?}; last: {call}")),
        (true, None) => hangs(format!("hung after {deadline:?}, with no call under way")),
        (false, _) => Stop::Inconclusive(format!(
            "every call ended, but all of them together took longer than the {deadline:?} that the case has: the server or this \
             machine is slow; fewer cases at once may help"
        )),
    }
}

#[cfg(test)]
mod tests {
    use anyqueue::adapter::{Forward, PushQueueStorage as _, Storage, async_trait};
    use anyqueue::{MessageData, PartitionId, PushOutcome, Result};
    use anyqueue_memory::MemoryQueue;

    use super::*;
    use crate::verdict::Failure;

    /// Correct, but each push takes this long.
    #[derive(Debug)]
    struct Slow(MemoryQueue, Duration);

    #[async_trait]
    impl Forward for Slow {
        fn inner(&self) -> &dyn Storage {
            &self.0
        }

        async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
            tokio::time::sleep(self.1).await;
            self.0.push(partition, messages).await
        }
    }

    struct SlowHarness(Duration);

    #[async_trait]
    impl Harness for SlowHarness {
        fn name(&self) -> &'static str {
            "slow"
        }

        async fn open(&self, _: &str) -> Result<Arc<dyn Storage>> {
            Ok(Arc::new(Slow(MemoryQueue::new(), self.0)))
        }
    }

    const FOREVER: Duration = Duration::from_hours(1);
    const MILLISECOND: Duration = Duration::from_millis(1);

    /// Returns the verdict on a case that pushes `times` times in sequence, and has not ended at its deadline
    /// of a second.
    async fn said(push_takes: Duration, times: usize, hung: Duration) -> Stop {
        let (deadline, standstill) = (1000 * MILLISECOND, 500 * MILLISECOND);
        let harness = Arc::new(SlowHarness(push_takes));
        let context = Context::open(harness, "verdict.overdue", false, &Options::new()).await.unwrap();
        let pushes = async {
            let partition = context.partition("p").unwrap();
            for _ in 0..times {
                let _ = context.client().push(&partition, &[MessageData::new("x")]).await;
            }
            std::future::pending::<()>().await;
        };
        let patience = Patience { hung, standstill, look: MILLISECOND };
        tokio::select! { stop = overdue(&context, deadline, patience) => stop, () = pushes => unreachable!() }
    }

    /// The same, again while it is not as expected: a machine that stood still before the deadline has made no
    /// call either.
    async fn said_once(push_takes: Duration, times: usize, is_expected: impl Fn(&Stop) -> bool) -> Stop {
        let mut stop = said(push_takes, times, FOREVER).await;
        for _ in 0..4 {
            if is_expected(&stop) {
                break;
            }
            stop = said(push_takes, times, FOREVER).await;
        }
        stop
    }

    fn hangs(stop: &Stop, how: &str) -> bool {
        matches!(stop, Stop::Fail(failure) if failure.clause == Clause::Recovery && failure.seen.contains(how))
    }

    #[tokio::test]
    async fn a_case_whose_every_call_ends_is_inconclusive_at_its_deadline() {
        let is_slow = |stop: &Stop| matches!(stop, Stop::Inconclusive(why) if why.contains("slow"));
        let stop = said_once(20 * MILLISECOND, usize::MAX, is_slow).await;
        assert!(is_slow(&stop), "{stop:?}");
    }

    #[tokio::test]
    async fn a_case_in_which_nothing_begins_or_ends_any_more_hangs_at_its_deadline() {
        for (push_takes, how) in [(FOREVER, "last: "), (Duration::ZERO, "no call under way")] {
            let stop = said_once(push_takes, 1, |stop| hangs(stop, how)).await;
            assert!(hangs(&stop, how), "{stop:?}");
        }
    }

    #[tokio::test]
    async fn a_call_that_goes_on_for_too_long_hangs_before_the_deadline() {
        let stop = said(FOREVER, 1, 100 * MILLISECOND).await;
        assert!(hangs(&stop, "longer than it was asked to wait"), "{stop:?}");
    }

    #[tokio::test]
    async fn what_proves_nothing_or_was_late_is_run_again_a_few_times_and_what_fails_is_not() {
        use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

        fn failed() -> Stop {
            let (expected, seen) = ("this".to_owned(), "that".to_owned());
            let (history, likely) = (Vec::new(), Vec::new());
            Stop::Fail(Box::new(Failure { clause: Clause::PullWait, expected, seen, history, likely }))
        }
        let passed = || Attempt::Conclusive(Outcome::Pass);

        for open in [|| Stop::Inconclusive("too slow".to_owned()), || failed().late()] {
            let runs = AtomicU32::new(0);
            let nth = |number, other: fn() -> Attempt| {
                runs.store(0, SeqCst);
                let runs = &runs;
                move || async move {
                    if runs.fetch_add(1, SeqCst) + 1 == number { other() } else { open().into() }
                }
            };
            let (outcome, attempts) = until_conclusive(4, FOREVER, nth(3, passed)).await;
            assert!(matches!(outcome, Outcome::Pass) && attempts == 3, "{outcome:?}");
            let (outcome, attempts) = until_conclusive(4, FOREVER, nth(2, || failed().into())).await;
            assert!(matches!(outcome, Outcome::Fail(_)) && attempts == 2, "{outcome:?}");
            let (outcome, attempts) = until_conclusive(4, FOREVER, nth(0, passed)).await;
            assert_eq!((outcome, attempts), (open().into(), 4));
            let (outcome, attempts) = until_conclusive(1, FOREVER, nth(2, passed)).await;
            assert_eq!((outcome, attempts), (open().into(), 1));
            let (outcome, attempts) = until_conclusive(4, Duration::ZERO, nth(3, passed)).await;
            assert_eq!((outcome, attempts), (open().into(), 2), "the whole is slow");
        }
    }
}
