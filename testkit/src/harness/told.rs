//! Checks whether a process that waits for a task is notified when another process ends the task.

use std::time::Duration;

use anyqueue::adapter::IntoStorage;
use anyqueue::{Keep, ManualClock, MessageData, MessageId, Queue, QueueMessageStatus, TaskState};

/// How long it may take until the wait is known elsewhere, which nothing shows: the pause doubles with each
/// turn.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const TURNS: u32 = 7;
/// How long a notification may take.
const LONGEST: Duration = Duration::from_secs(10);

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Of two handles on one queue, the first waits for tasks, and the second ends them: succeeded, dead, and
/// cancelled. The clock of the first handle stands still, so after its first look it never looks by itself:
/// it can only have been notified.
///
/// # Errors
/// If the first handle was notified of none of several tasks in a row, each of which left more time between
/// the beginning of the wait and the end of the task; and any error of a call.
pub async fn is_told_of_ends(waits: impl IntoStorage, works: impl IntoStorage) -> Outcome {
    let stopped = ManualClock::new();
    let waits = Queue::builder(waits).clock(stopped.clock()).ledger(Keep::default()).build()?;
    let works = Queue::builder(works).ledger(Keep::default()).build()?;
    // A handle that has waited for messages also receives notifications.
    works.pull("told").wait(Duration::from_millis(1)).await?;
    for state in [TaskState::Succeeded, TaskState::Failed, TaskState::Cancelled] {
        let mut is_told = false;
        for turn in 0..TURNS {
            is_told = is_told_of_one(&waits, &works, state, FIRST_PAUSE * 2_u32.pow(turn)).await?;
            if is_told {
                break;
            }
        }
        if !is_told {
            return Err(format!("nobody told of a task that ended as {state:?}").into());
        }
    }
    works.close().await?;
    Ok(waits.close().await?)
}

/// Whether the first handle is notified of a task that ends like this, `after` it has begun to wait.
async fn is_told_of_one(waits: &Queue, works: &Queue, state: TaskState, after: Duration) -> Outcome<bool> {
    let message = MessageData::new("m");
    let id = message.id();
    works.push("told", message).await?;
    let waiting = waits.wait_for("told", id, Duration::from_hours(1));
    let ending = async {
        tokio::time::sleep(after).await;
        end(works, id, state).await
    };
    let both = async { tokio::join!(waiting, ending) };
    let Ok((told, ended)) = tokio::time::timeout(after + LONGEST, both).await else { return Ok(false) };
    ended?;
    match told? {
        Some(task) if task.id == id && task.state == state => Ok(true),
        other => Err(format!("told of {other:?}, and not of {id} as {state:?}").into()),
    }
}

async fn end(works: &Queue, id: MessageId, state: TaskState) -> Outcome {
    if state == TaskState::Cancelled {
        works.request_cancel("told", &[id]).await?;
        return Ok(());
    }
    loop {
        let mut pulled = works.pull("told").wait(LONGEST).await?;
        let next = pulled.first_mut().ok_or("nothing was pulled")?;
        if next.id() != id {
            // A message of a turn that was given up.
            next.settle(QueueMessageStatus::Processed).await?;
            continue;
        }
        let status = match state {
            TaskState::Failed => QueueMessageStatus::poisonous("bad"),
            _ => QueueMessageStatus::Processed,
        };
        next.settle(status).await?;
        return Ok(());
    }
}
