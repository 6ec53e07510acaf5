//! Carries out a plan: its processes run concurrently, each with its own clients, and everything is recorded.

use anyqueue::adapter::{QueueStorage as _, Storage as _};
use futures_util::future::join_all;

use super::actor::Actor;
use super::ends;
use super::generate::PARTITIONS;
use super::plan::{Place, Plan};
use super::stage::{Stage, not_opened, partition};
use crate::account::{Drain, Stuck};
use crate::history::Exported;

/// Carries out the plan, then drains the storage.
///
/// # Errors
/// Returns an error if a client cannot be opened, or a call does not end.
pub(super) async fn run(stage: &Stage, plan: &Plan) -> std::result::Result<Exported, Stuck> {
    let outcome = stage.in_time(act(stage, plan)).await;
    stage.harness.remove(&stage.namespace).await;
    outcome?;
    Ok(stage.history.export(stage.rules.clone()))
}

async fn act(stage: &Stage, plan: &Plan) -> std::result::Result<(), Stuck> {
    let processes = (0..plan.processes).map(|process| async move {
        let mut actor = Actor::new(stage, process).await?;
        for step in plan.steps.iter().filter(|step| step.process == process) {
            actor.act(&step.act).await?;
        }
        actor.leave().await;
        Ok(actor)
    });
    let actors = join_all(processes).await.into_iter().collect::<std::result::Result<Vec<_>, _>>()?;
    let storage = stage.open("drain").await.map_err(|error| not_opened(&error))?;
    if let Some(pause) = storage.pause().filter(|_| storage.capabilities().pause) {
        for number in 0..PARTITIONS {
            let _ = pause.set_paused(&partition(Place { number, dead: false }), false).await;
        }
    }
    let drain =
        Drain { storage: &storage, history: &stage.history, clock: &stage.clock, rules: &stage.rules };
    drain.run().await?;
    if let Some(ledger) = storage.ledger().filter(|_| storage.capabilities().ledger.is_some()) {
        // These calls are not in the history: without the turn, time would pass during them.
        let _turn = stage.turn().await;
        ends::judge(&stage.history, ledger).await?;
    }
    let _ = storage.close().await;
    for actor in actors {
        actor.close().await;
    }
    Ok(())
}
