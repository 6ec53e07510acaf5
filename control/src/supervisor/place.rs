//! The processes that run under one name, one after the other.

use std::time::Duration;

use tokio::time::Instant;

use super::backoff::Backoff;
use super::child::{Exit, live};
use super::events::Event;
use super::shared::{Place, Shared, Stage};

/// Keeps a process running until it is done, or the supervisor ends.
pub(super) async fn keep(shared: &Shared, place: &Place) {
    let mut backoff = Backoff::new(shared.options);
    while !shared.is_ending() {
        let began = Instant::now();
        let exit = live(shared, place).await;
        if shared.is_ending() {
            break;
        }
        let name = place.name.clone();
        match exit {
            Exit::Done => {
                place.state().is_done = true;
                shared.note(&Event::Done { name });
                break;
            }
            Exit::Recycled => {
                place.state().failures = 0;
                shared.note(&Event::Recycled { name });
            }
            Exit::Failed(how) => {
                let lived = began.elapsed();
                let pause = backoff.pause(lived);
                shared.note(&Event::Failed { name, how: how.clone(), pause });
                count_failure(shared, place, lived);
                shared.give_up_if_hopeless(&how);
                rest(shared, pause).await;
            }
        }
    }
}

fn count_failure(shared: &Shared, place: &Place, lived: Duration) {
    let mut state = place.state();
    state.failures = if lived < shared.options.least_life { state.failures.saturating_add(1) } else { 0 };
}

/// Waits, unless the supervisor is ending.
async fn rest(shared: &Shared, pause: Duration) {
    let mut stage = shared.stage.subscribe();
    tokio::select! {
        () = tokio::time::sleep(pause) => {}
        _ = stage.wait_for(|stage| *stage > Stage::Running) => {}
    }
}
