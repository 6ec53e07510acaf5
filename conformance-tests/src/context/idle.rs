//! Whether a thread has nothing to do while others wait on it.

use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::Context;
use crate::clause::Clause;
use crate::verdict::CaseResult;

/// How long each observation of a thread that should be idle lasts, and how many observations there are. The
/// best of them counts, as other work runs on this machine too.
const LOOK: Duration = Duration::from_millis(150);
const LOOKS: usize = 8;

/// The busiest that a waiting thread may be.
const BUSY: f64 = 0.5;

impl Context {
    /// Judges that the thread of this runtime is idle although others wait on it. Outside a single-threaded
    /// runtime, and if the system does not report the time, it judges nothing.
    pub(crate) async fn thread_is_idle(&self, clause: Clause, who: &str) -> CaseResult {
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
        self.check(
            clause,
            &[],
            least < BUSY,
            expected,
            format!("busy for {:.0} % of the time", least * 100.0),
        )
    }
}

/// Returns how long this thread has run, or waited for a processor to run on, so that other work on this
/// machine makes no difference.
fn wished_to_run() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut nanos = text.split_whitespace().map(str::parse::<u64>);
    let (ran, waited) = (nanos.next()?.ok()?, nanos.next()?.ok()?);
    Some(Duration::from_nanos(ran.saturating_add(waited)))
}
