//! Whether the machine ran due work in time, for verdicts that depend on it.

use std::future::Future;
use std::time::{Duration, Instant};

use crate::verdict::{CaseResult, Stop};

/// How often to check whether a sleeper wakes in time.
const TICK: Duration = Duration::from_millis(10);

/// Runs something that a late machine breaks, such as keeping a short lease by heartbeats. Its failure proves
/// nothing if anything that was due in this runtime ran more than `most` late.
pub(crate) async fn if_punctual<T>(
    most: Duration,
    act: impl Future<Output = CaseResult<T>>,
) -> CaseResult<T> {
    let mut latest = Duration::ZERO;
    let mut act = std::pin::pin!(act);
    let acted = loop {
        let due = Instant::now() + TICK;
        tokio::select! {
            biased;
            acted = &mut act => break acted,
            () = tokio::time::sleep_until(due.into()) => latest = latest.max(due.elapsed()),
        }
    };
    match acted {
        Err(Stop::Fail(failure)) if latest > most => {
            let why = format!("this machine was {latest:.1?} late, which may be why: {}", failure.seen);
            Err(Stop::Inconclusive(why))
        }
        acted => acted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clause::Clause;
    use crate::verdict::Failure;

    async fn failing_after(blocked: Duration, most: Duration) -> CaseResult {
        let act = async move {
            tokio::task::yield_now().await;
            std::thread::sleep(blocked); // nothing else runs in this runtime
            tokio::time::sleep(TICK * 2).await;
            let (expected, seen) = ("a lease that lasts".to_owned(), "none".to_owned());
            let (history, likely) = (Vec::new(), Vec::new());
            Err(Stop::Fail(Box::new(Failure { clause: Clause::Extend, expected, seen, history, likely })))
        };
        if_punctual(most, act).await
    }

    #[tokio::test]
    async fn a_failure_proves_nothing_where_the_machine_was_late() {
        let late = failing_after(Duration::from_millis(80), Duration::from_millis(40)).await;
        assert!(matches!(late, Err(Stop::Inconclusive(why)) if why.contains("none")));
        let punctual = failing_after(Duration::ZERO, Duration::from_mins(1)).await;
        assert!(matches!(punctual, Err(Stop::Fail(_))));
    }
}
