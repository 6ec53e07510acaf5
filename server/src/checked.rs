//! Changes of schedules and limits by those who may not change all of them: what was checked is what is changed, whatever others do in between.

use std::future::Future;

use anyqueue::Result;
use anyqueue_control::limits::Limits;
use anyqueue_control::{Deleted, Precondition};

use crate::access;
use crate::app::App;
use crate::manage::check_limit;
use crate::problem::{Answer, Problem};

/// How often it is looked anew at what others change meanwhile.
const ROUNDS: usize = 16;

/// Changes a schedule, if it is as expected and for a queue of whoever asks; one that cannot be read may be for any. `None`: it is not as expected.
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

/// The same of a limit.
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

/// Changes what `look` found, and nothing else: it refuses what whoever asks may not change, and returns which revision it has seen.
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
    Err(Problem::busy("others change it all the time: try again"))
}

/// A deletion as a change.
pub(crate) fn deleted(deleted: Deleted) -> Option<Deleted> {
    (deleted != Deleted::NotExpected).then_some(deleted)
}
