//! Cases on a runtime of one thread, as many programs have: whatever keeps the thread to itself holds up everything there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::case::{Case, CaseResult, Outcome};
use crate::context::Context;
use crate::harness::Harness;
use crate::run::{self, Options};

/// A case ends by its own deadlines, unless its thread is blocked. Then it is left behind after so much longer.
const BLOCKED: Duration = Duration::from_secs(30);

/// How long one look lasts at what a thread does while it should do nothing, and how many looks there are. The best of them counts, as
/// others work on this machine too.
const LOOK: Duration = Duration::from_millis(150);
const LOOKS: usize = 8;

/// The busiest that a thread may be that waits.
const BUSY: f64 = 0.5;

/// Runs a case in a runtime of one thread of its own, with clients of its own.
pub(crate) async fn run(
    harness: Arc<dyn Harness>,
    case: &'static Case,
    options: &Options,
    patience: Duration,
) -> Outcome {
    let (say, told) = oneshot::channel();
    let options = options.clone();
    let alone = move || {
        let outcome = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => {
                let outcome = runtime.block_on(run::verdict(harness, case, &options));
                runtime.shutdown_background();
                outcome
            }
            Err(error) => Outcome::Inconclusive { why: format!("no runtime of one thread: {error}") },
        };
        // Nobody waits any more for one that was left behind.
        let _ = say.send(outcome);
    };
    let expected = "every call to leave its thread to others while it waits";
    if let Err(error) = std::thread::Builder::new().name(case.id.to_owned()).spawn(alone) {
        return Outcome::Inconclusive { why: format!("no thread: {error}") };
    }
    match tokio::time::timeout(patience + BLOCKED, told).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => run::fail(40, "no panic", "the thread of the runtime panicked", Vec::new()),
        Err(_) => run::fail(40, expected, "its only thread was blocked", Vec::new()),
    }
}

/// Judges that the thread of this runtime has nothing to do, though others wait in it. Elsewhere than on a runtime of one thread, and
/// where the system does not tell, it says nothing.
pub(crate) async fn is_idle(c: &Context, clause: u8, who: &str) -> CaseResult {
    let mut least = f64::INFINITY;
    for _ in 0..LOOKS {
        let alone = Handle::current().metrics().num_workers() == 1;
        let Some(before) = wished_to_run().filter(|_| alone) else { return Ok(()) };
        let begun = Instant::now();
        tokio::time::sleep(LOOK).await;
        let busy = wished_to_run().unwrap_or(before).saturating_sub(before);
        least = least.min(busy.as_secs_f64() / begun.elapsed().as_secs_f64());
        if least < BUSY {
            break;
        }
    }
    let expected = format!("a thread that has nothing to do while {who}");
    c.check(clause, &[], least < BUSY, expected, format!("busy for {:.0} % of the time", least * 100.0))
}

/// How long this thread has run, or waited for a processor to run on, so that what others do on this machine makes no difference.
fn wished_to_run() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut nanos = text.split_whitespace().map(str::parse::<u64>);
    let (ran, waited) = (nanos.next()?.ok()?, nanos.next()?.ok()?);
    Some(Duration::from_nanos(ran.saturating_add(waited)))
}
