//! Changes of schedules and limits by callers who may not change all of them: exactly what was checked is
//! changed, whatever others do in between.

use std::future::Future;

use anyqueue::Result;
use anyqueue_control::limits::Limits;
use anyqueue_control::{Deleted, Precondition};

use crate::access;
use crate::app::App;
use crate::manage::check_limit;
use crate::problem::{Answer, Problem};

/// How many times the check is repeated when others change the entry meanwhile.
const ROUNDS: usize = 16;

/// Changes a schedule if it is as expected and for a queue that the caller may touch. A schedule that cannot
/// be read may be for any queue. Returns `None` if it is not as expected.
pub(crate) async fn schedule<T, Changed>(
    app: &App,
    name: &str,
    expected: &Precondition,
    change: impl Fn(Precondition) -> Changed,
) -> Answer<Option<T>>
where
    Changed: Future<Output = Result<Option<T>>>,
{
    let scheduler = app.scheduler()?;
    let look = || async move {
        let Some(info) = scheduler.get(name).await? else { return Ok(None) };
        access::check(info.schedule.partition.name())?;
        Ok(Some(info.revision))
    };
    checked(expected, look, change).await
}

/// Does the same for a limit.
pub(crate) async fn limit<T, Changed>(
    store: &Limits,
    name: &str,
    expected: &Precondition,
    change: impl Fn(Precondition) -> Changed,
) -> Answer<Option<T>>
where
    Changed: Future<Output = Result<Option<T>>>,
{
    let look = || async move {
        let Some(info) = store.get(name).await? else { return Ok(None) };
        check_limit(&info)?;
        Ok(Some(info.tag))
    };
    checked(expected, look, change).await
}

/// Changes exactly the revision that `look` found. `look` refuses what the caller may not change, and returns
/// the revision that it has seen.
async fn checked<T, Looked, Changed>(
    expected: &Precondition,
    look: impl Fn() -> Looked,
    change: impl Fn(Precondition) -> Changed,
) -> Answer<Option<T>>
where
    Looked: Future<Output = Answer<Option<String>>>,
    Changed: Future<Output = Result<Option<T>>>,
{
    if access::covers_all() {
        return Ok(change(expected.clone()).await?);
    }
    for _ in 0..ROUNDS {
        let seen = look().await?;
        let Some(seen) = expected.narrowed_to(seen.as_deref()) else { return Ok(None) };
        if let Some(changed) = change(seen).await? {
            return Ok(Some(changed));
        }
    }
    Err(Problem::busy("others keep changing it: try again"))
}

/// Turns a deletion into a change: `None` if the entry was not as expected.
pub(crate) fn deleted(deleted: Deleted) -> Option<Deleted> {
    (deleted != Deleted::NotExpected).then_some(deleted)
}
