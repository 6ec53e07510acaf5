//! Starting a queue: its parts are created, and its heartbeat begins.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::caller::StorageCaller;
use super::coalesce::{Coalescer, GATHER, Room};
use super::deliveries::DeliveryCounts;
use super::handle::Queue;
use super::keeper::{self, Held, LeaseKeeper};
use super::options::Options;
use super::shared::{PushCall, SettleCall, Shared};
use crate::capabilities::{Capabilities, SettleConfirm};
use crate::end_watches::EndWatches;
use crate::error::Result;
use crate::exec::{Exec, Spawner};
use crate::io::IoThread;
use crate::storage::Storage;
use crate::telemetry::PartitionLabels;

/// The most permits that one request to a tokio semaphore can take.
const MAX_PERMITS: u32 = u32::MAX >> 3;

/// Starts a queue over this storage.
pub(super) fn start(
    storage: Arc<dyn Storage>,
    options: Options,
    io: Option<IoThread>,
    spawner: Option<Spawner>,
    capabilities: Capabilities,
) -> Result<Queue> {
    let clock = options.clock.clone();
    let exec = Exec::new(io, spawner, clock.clone(), options.call_timeout)?;
    let caller = StorageCaller {
        storage,
        clock: clock.clone(),
        retry: options.retry,
        call_timeout: options.call_timeout,
        labels: Arc::new(PartitionLabels::new(options.metric_partitions)),
        end_watches: Arc::new(EndWatches::within_process()),
    };
    let limits = capabilities.limits;
    let push_room = Room { items: limits.push_batch, bytes: limits.push_batch_bytes };
    // A settlement weighs as much as its successors.
    let settle_room = Room { items: limits.settle_batch, bytes: limits.push_batch_bytes };
    let push = capabilities.coalesce_push;
    let pusher = Coalescer::new(PushCall(caller.clone()), push, push_room, GATHER, clock.clone());
    // A settlement that the server does not confirm is no round trip: waiting for others would save nothing.
    let is_sent = capabilities.settle_confirm == SettleConfirm::Sent;
    let gather = if is_sent { Duration::ZERO } else { GATHER };
    let settle = capabilities.coalesce_settle;
    let settler = Coalescer::new(SettleCall(caller.clone()), settle, settle_room, gather, clock);
    let keeper = Arc::new(LeaseKeeper::new(capabilities.lease.min, options.call_timeout));
    let (gone, closing) = (CancellationToken::new(), CancellationToken::new());
    let push_room_permits =
        u32::try_from(options.push_buffer_bytes / 1024).unwrap_or(u32::MAX).clamp(1, MAX_PERMITS);
    let shared = Arc::new_cyclic(|shared: &Weak<Shared>| {
        let shared = shared.clone();
        let on_lost = move |held: &Held| {
            if let Some(shared) = shared.upgrade() {
                shared.lost_here(held);
            }
        };
        let end = HeartbeatEnd {
            gone: gone.clone(),
            exec: exec.clone(),
            closing: closing.clone(),
            keeper: keeper.clone(),
        };
        let heartbeat =
            keeper::heartbeat(keeper.clone(), caller.clone(), exec.clone(), gone.clone(), on_lost);
        exec.spawn(async move {
            heartbeat.await;
            drop(end);
        });
        Shared {
            held: metrics::gauge!("anyqueue_held", "backend" => caller.name()),
            deliveries: DeliveryCounts::new(&capabilities),
            capabilities,
            slots: Arc::new(Semaphore::new(options.max_held.min(Semaphore::MAX_PERMITS))),
            push_room: Arc::new(Semaphore::new(push_room_permits as usize)),
            push_room_permits,
            options,
            exec,
            caller,
            pusher,
            settler,
            keeper,
            closing,
            active: TaskTracker::new(),
            _gone: gone.drop_guard(),
        }
    });
    Ok(Queue(shared))
}

/// Dropped with the heartbeat's task. Unless the queue itself is gone, this means that its runtime has ended,
/// and with it the queue: without a heartbeat nothing can be held.
struct HeartbeatEnd {
    gone: CancellationToken,
    exec: Exec,
    closing: CancellationToken,
    keeper: Arc<LeaseKeeper>,
}

impl Drop for HeartbeatEnd {
    fn drop(&mut self) {
        if self.gone.is_cancelled() {
            return;
        }
        self.exec.end();
        self.closing.cancel();
        // Whoever takes charge of deliveries from now on sees that it has ended.
        for held in self.keeper.drain() {
            held.fire_lost();
        }
    }
}
