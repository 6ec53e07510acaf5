//! The slots: how many tasks run, in which partition, and when the fetch loop should look again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize, Ordering::SeqCst};

use anyqueue::MessageId;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Notify;

use crate::context::TaskContext;
use crate::handler::Route;
use crate::permits::{Permit, Ticket};
use crate::running::Running;

/// Counters that tasks and the fetch loop share. Only the fetch loop increases `occupied`.
#[derive(Debug)]
pub(crate) struct Pool {
    slots: AtomicUsize,
    /// How many of them the governor allows.
    allowed: AtomicUsize,
    occupied: AtomicUsize,
    /// How many tasks have slots beyond the number of occupied slots: the tasks of a batch share their slots,
    /// and a heavy task has several.
    beyond: AtomicIsize,
    /// How many of the occupied slots belong to tasks whose handler has ended and whose settlement is under
    /// way. They will be free in a moment.
    settling: AtomicUsize,
    /// How many tasks have ended since the worker was built.
    ended: AtomicU64,
    partitions: Vec<Usage>,
    pub(crate) running: Running,
    /// Whether every slot that becomes free wakes the fetch loop.
    pub(crate) eager: AtomicBool,
    /// Wakes the fetch loop.
    pub(crate) changed: Notify,
}

/// What runs of one partition.
#[derive(Debug, Default)]
struct Usage {
    /// The number of tasks; a batch is one.
    tasks: AtomicUsize,
    /// Their slots beyond one each, because some tasks are heavy.
    extra: AtomicUsize,
}

impl Pool {
    pub(crate) fn new(slots: usize, partitions: usize) -> Self {
        Self {
            slots: AtomicUsize::new(slots),
            allowed: AtomicUsize::new(usize::MAX),
            occupied: AtomicUsize::new(0),
            beyond: AtomicIsize::new(0),
            settling: AtomicUsize::new(0),
            ended: AtomicU64::new(0),
            partitions: (0..partitions).map(|_| Usage::default()).collect(),
            running: Running::default(),
            eager: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    pub(crate) fn occupied(&self) -> usize {
        self.occupied.load(SeqCst)
    }

    /// The number of tasks that have a slot.
    pub(crate) fn tasks(&self) -> usize {
        self.occupied().saturating_add_signed(self.beyond.load(SeqCst))
    }

    pub(crate) fn settling(&self) -> usize {
        self.settling.load(SeqCst)
    }

    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(SeqCst)
    }

    /// The number of running tasks of a partition; a batch is one.
    pub(crate) fn tasks_in(&self, partition: usize) -> usize {
        self.partitions.get(partition).map_or(0, |usage| usage.tasks.load(SeqCst))
    }

    /// The number of slots that those tasks have.
    pub(crate) fn slots_in(&self, partition: usize) -> usize {
        let slots = |usage: &Usage| usage.tasks.load(SeqCst) + usage.extra.load(SeqCst);
        self.partitions.get(partition).map_or(0, slots)
    }

    /// The number of slots, as set.
    pub(crate) fn all_slots(&self) -> usize {
        self.slots.load(SeqCst)
    }

    /// How many of them may be used now.
    pub(crate) fn slots(&self) -> usize {
        self.all_slots().min(self.allowed.load(SeqCst))
    }

    /// Sets how many slots the governor allows.
    pub(crate) fn allow(&self, slots: usize) {
        self.allowed.store(slots, SeqCst);
    }

    pub(crate) fn set_slots(&self, slots: usize) {
        self.slots.store(slots, SeqCst);
        self.changed.notify_one();
    }

    /// The number of free slots that makes a pull worthwhile.
    pub(crate) fn quarter(&self) -> usize {
        self.slots().div_ceil(4)
    }

    /// Waits until no slot is occupied. For the fetch loop, while it is `eager`.
    pub(crate) async fn idle(&self) {
        while self.occupied() > 0 {
            self.changed.notified().await;
        }
    }

    /// Notes that a task takes its slots.
    fn taken(&self, partition: usize, slots: usize) {
        self.occupied.fetch_add(slots, SeqCst);
        let Some(usage) = self.partitions.get(partition) else { return };
        usage.tasks.fetch_add(1, SeqCst);
        if slots > 1 {
            usage.extra.fetch_add(slots - 1, SeqCst);
            self.beyond.fetch_sub((slots - 1).cast_signed(), SeqCst);
        }
    }

    /// Notes that slots become free. Wakes the fetch loop, unless other settlements are under way: one pull
    /// for several slots is cheaper than one pull for each.
    fn freed(&self, partition: usize, slots: usize, settling: bool) {
        if let Some(usage) = self.partitions.get(partition) {
            usage.tasks.fetch_sub(1, SeqCst);
            if slots > 1 {
                usage.extra.fetch_sub(slots - 1, SeqCst);
                self.beyond.fetch_add((slots - 1).cast_signed(), SeqCst);
            }
        }
        self.ended.fetch_add(1, SeqCst);
        if settling {
            self.settling.fetch_sub(1, SeqCst);
        }
        let occupied = self.occupied.fetch_sub(slots, SeqCst) - slots;
        let free = self.slots().saturating_sub(occupied);
        if free >= self.quarter() || self.settling() == 0 || self.eager.load(SeqCst) {
            self.changed.notify_one();
        }
    }
}

/// The right to the slots of a task. Dropping it frees the slots, however the task ends.
#[derive(Debug)]
pub(crate) struct SlotPermit {
    pool: Arc<Pool>,
    pub(crate) partition: usize,
    slots: usize,
    route: Option<Arc<Route>>,
    /// The task that this permit lists as running.
    listed: Option<MessageId>,
    settling: AtomicBool,
    share: Share,
    /// The permit that lets the task run, if permits are needed.
    held: Option<Permit>,
    /// The tickets that let the task run, from limits that depend on the message.
    tickets: Vec<Ticket>,
}

/// How much of the slots a permit stands for.
#[derive(Debug)]
enum Share {
    /// All of the slots, for one task.
    Whole,
    /// All of the slots, for a batch whose tasks have a part each.
    OfBatch,
    /// The part of one task. The slots become free with the last part.
    Part(Arc<SlotPermit>),
}

impl SlotPermit {
    pub(crate) fn new(pool: &Arc<Pool>, partition: usize, slots: usize, route: Option<Arc<Route>>) -> Self {
        pool.taken(partition, slots);
        if let Some(route) = &route {
            route.running.fetch_add(1, SeqCst);
        }
        Self {
            pool: pool.clone(),
            partition,
            slots,
            route,
            listed: None,
            settling: AtomicBool::new(false),
            share: Share::Whole,
            held: None,
            tickets: Vec::new(),
        }
    }

    /// Adds the permit that lets the tasks run, which is released with the slots.
    pub(crate) fn holding(mut self, held: Option<Permit>) -> Self {
        self.held = held;
        self
    }

    /// Takes out the permit that let the task run, now that it is settled. That of a batch comes back with
    /// its last task.
    pub(crate) fn take_held(&mut self) -> Option<Permit> {
        self.held.take()
    }

    /// The permit that lets the tasks run, if permits are needed.
    pub(crate) fn held(&self) -> Option<&Permit> {
        match &self.share {
            Share::Part(whole) => whole.held.as_ref(),
            _ => self.held.as_ref(),
        }
    }

    /// Adds the tickets that let the task run, from limits that depend on the message.
    pub(crate) fn keep(&mut self, tickets: Vec<Ticket>) {
        self.tickets = tickets;
    }

    /// Waits until the task has to stop, because the permit or a ticket cannot be kept.
    pub(crate) async fn revoked(&self) {
        let of_partition = async {
            match self.held() {
                Some(held) => held.revoked().await,
                None => std::future::pending().await,
            }
        };
        if self.tickets.is_empty() {
            return of_partition.await;
        }
        let mut of_message: FuturesUnordered<_> = self.tickets.iter().map(Ticket::revoked).collect();
        tokio::select! {
            biased;
            () = of_partition => {},
            Some(()) = of_message.next() => {},
        }
    }

    /// Splits the permit into parts, one for each of `tasks` tasks.
    pub(crate) fn split(mut self, tasks: usize) -> Vec<Self> {
        self.share = Share::OfBatch;
        self.pool.beyond.fetch_sub(1, SeqCst);
        let whole = Arc::new(self);
        (0..tasks).map(|_| Self::part_of(&whole)).collect()
    }

    fn part_of(whole: &Arc<Self>) -> Self {
        whole.pool.beyond.fetch_add(1, SeqCst);
        Self {
            pool: whole.pool.clone(),
            partition: whole.partition,
            slots: whole.slots,
            route: None,
            listed: None,
            settling: AtomicBool::new(false),
            share: Share::Part(whole.clone()),
            held: None,
            tickets: Vec::new(),
        }
    }

    /// Lists a task as running. Returns `false` if it is listed already.
    pub(crate) fn list(&mut self, task: TaskContext) -> bool {
        let id = task.id();
        let listed = self.pool.running.insert_new(id, task);
        if listed {
            self.listed = Some(id);
        }
        listed
    }

    /// Notes that the handler has ended.
    pub(crate) fn settling(&self) {
        if let Share::Part(whole) = &self.share {
            whole.settling();
        } else if !self.settling.swap(true, SeqCst) {
            self.pool.settling.fetch_add(1, SeqCst);
        }
    }
}

impl Drop for SlotPermit {
    fn drop(&mut self) {
        if let Some(id) = self.listed {
            self.pool.running.remove(id);
        }
        self.tickets.clear();
        match self.share {
            Share::Part(_) => {
                self.pool.beyond.fetch_sub(1, SeqCst);
                return;
            }
            Share::OfBatch => {
                self.pool.beyond.fetch_add(1, SeqCst);
            }
            Share::Whole => {}
        }
        if let Some(route) = &self.route {
            route.running.fetch_sub(1, SeqCst);
        }
        // Before waking the loop, which may take it again.
        drop(self.held.take());
        self.pool.freed(self.partition, self.slots, self.settling.load(SeqCst));
    }
}
