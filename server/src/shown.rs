//! What the registry shows of the tasks that a worker elsewhere holds.

use std::time::SystemTime;

use anyqueue::header::{TASK_ATTEMPTS, TASK_KIND};
use anyqueue::{MessageData, PartitionId};
use anyqueue_control::registry::HeldTask;

use crate::app::App;
use crate::held::Held;

/// What is shown of the task; `None` if its delivery is kept no longer.
pub(crate) async fn shown(app: &App, held: &Held) -> Option<HeldTask> {
    let of = |message: &MessageData, partition: &PartitionId, received: SystemTime| {
        let headers = message.headers();
        let kind = headers.get(TASK_KIND).map(String::as_str).unwrap_or_default();
        let failed: u32 = headers.get(TASK_ATTEMPTS).and_then(|text| text.parse().ok()).unwrap_or_default();
        let ran = app.queue.clock().wall().duration_since(received).unwrap_or_default();
        HeldTask::new(partition.to_string(), message.id(), kind).with_run(failed.saturating_add(1), ran)
    };
    match held {
        Held::Detached(one) => Some(of(one.message_without_payload(), one.partition(), one.received_at())),
        Held::Pinned(pin) => {
            let pinned = app.pins.get(*pin)?;
            let one = pinned.lock().await;
            Some(of(one.message(), one.partition(), one.received_at()))
        }
    }
}
