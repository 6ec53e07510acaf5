//! What must hold when everything is at rest.

use std::time::{Duration, Instant};

use anyqueue_control::limits::Limits;
use anyqueue_control::registry::Registry;

use super::worker::VALID;
use crate::backends::Result;

/// How long a leak may take to go away by itself: by then, dead processes are known to be dead.
const PATIENCE: Duration = VALID.saturating_mul(5);
/// The time between two looks.
const LOOK: Duration = Duration::from_millis(500);

/// Looks until nothing is wrong or the time is over, and returns what is wrong then.
async fn until_right(mut look: impl AsyncFnMut() -> Result<Vec<String>>) -> Result<Vec<String>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let wrong = look().await?;
        if wrong.is_empty() || Instant::now() >= deadline {
            return Ok(wrong);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Checks that the living processes are in the registry, that nobody else is, and that none of them runs
/// anything.
pub(super) async fn of_registry(registry: &Registry, living: &[String]) -> Result<Vec<String>> {
    until_right(async || {
        let workers = registry.list().await?.workers;
        let ghosts = workers.iter().filter(|it| !living.contains(&it.name));
        let ghosts = ghosts.map(|it| format!("{} is in the registry and does not live", it.name));
        let missing = living.iter().filter(|name| !workers.iter().any(|it| it.name == **name));
        let missing = missing.map(|name| format!("{name} lives and is not in the registry"));
        let busy = workers.iter().filter(|it| it.running > 0);
        let busy = busy.map(|it| format!("{} runs {} tasks of which there are none", it.name, it.running));
        Ok(ghosts.chain(missing).chain(busy).collect())
    })
    .await
}

/// Checks that no dead process holds a permit or waits for one, and that a living one holds at most one: that
/// of a pull that waits for tasks.
pub(super) async fn of_limit(limits: &Limits, name: &str, living: &[String]) -> Result<Vec<String>> {
    until_right(async || {
        let Some(limit) = limits.get(name).await? else { return Ok(vec!["the limit is gone".to_owned()]) };
        let wrong = limit.holders.iter().filter(|it| it.held > 1 || !living.contains(&it.who));
        Ok(wrong.map(|it| format!("{} holds {} permits at rest", it.who, it.held)).collect())
    })
    .await
}

/// Checks that nobody is in the registry.
pub(super) async fn of_nobody(registry: &Registry) -> Result<Vec<String>> {
    let workers = registry.list().await?.workers;
    Ok(workers.iter().map(|it| format!("{} has ended and is in the registry", it.name)).collect())
}
