//! Runs cases on a single-threaded runtime, as many programs have: anything that blocks the thread holds up
//! everything else there.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::oneshot;

use super::verdict::{Judged, verdict};
use crate::case::Case;
use crate::clause::Clause;
use crate::harness::Harness;
use crate::options::Options;
use crate::verdict::Outcome;

/// A case ends by its own deadlines, unless its thread is blocked. In that case it is abandoned after this
/// much longer.
const BLOCKED: Duration = Duration::from_secs(30);

/// Runs a case in a single-threaded runtime of its own, with its own clients.
pub(super) async fn run(
    harness: Arc<dyn Harness>,
    case: &'static Case,
    options: &Options,
    patience: Duration,
) -> Judged {
    let (say, told) = oneshot::channel();
    let options = options.clone();
    let alone = move || {
        let judged = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => {
                let judged = runtime.block_on(verdict(harness, case, &options));
                runtime.shutdown_background();
                judged
            }
            Err(error) => (Outcome::Inconclusive { why: format!("no runtime of one thread: {error}") }, 1),
        };
        // If the case was abandoned, nobody waits for this any more.
        let _ = say.send(judged);
    };
    let expected = "every call to leave its thread to others while it waits";
    if let Err(error) = std::thread::Builder::new().name(case.id.to_owned()).spawn(alone) {
        return (Outcome::Inconclusive { why: format!("no thread: {error}") }, 1);
    }
    match tokio::time::timeout(patience + BLOCKED, told).await {
        Ok(Ok(judged)) => judged,
        Ok(Err(_)) => {
            (Outcome::broken(Clause::Recovery, "no panic", "the thread of the runtime panicked"), 1)
        }
        Err(_) => (Outcome::broken(Clause::Recovery, expected, "its only thread was blocked"), 1),
    }
}
