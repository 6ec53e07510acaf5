//! Entries of many callers, joined into full requests.
//!
//! Core could join entries only by partition, and with ten levels few requests would be full. Here they are
//! joined by queue: as many as fill a request are sent at once, and fewer wait for a moment first. The rest
//! of a larger call waits too, because core makes calls of two or three if that many tasks come at the same
//! time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Semaphore, oneshot};

use crate::entries::{BATCH, ChangeVisibility, Delete, Outgoing};
use crate::entry::Entry;
use crate::error::Refused;
use crate::names::LevelQueue;

/// The channel for the answer to an entry.
pub(crate) type Reply = oneshot::Sender<Result<(), Refused>>;

/// The most concurrent requests. Each takes a connection.
const MAX_CONCURRENT: usize = 32;

/// The waiting entries of each kind.
#[derive(Debug)]
pub(crate) struct AllJoins {
    pub(crate) permits: Semaphore,
    sent: Joins<Outgoing>,
    changed: Joins<ChangeVisibility>,
    deleted: Joins<Delete>,
}

impl Default for AllJoins {
    fn default() -> Self {
        Self {
            permits: Semaphore::new(MAX_CONCURRENT),
            sent: Joins::default(),
            changed: Joins::default(),
            deleted: Joins::default(),
        }
    }
}

/// Entries that can be joined.
pub(crate) trait Single: Entry + 'static {
    fn joins(all: &AllJoins) -> &Joins<Self>;
}

impl Single for Outgoing {
    fn joins(all: &AllJoins) -> &Joins<Self> {
        &all.sent
    }
}

impl Single for ChangeVisibility {
    fn joins(all: &AllJoins) -> &Joins<Self> {
        &all.changed
    }
}

impl Single for Delete {
    fn joins(all: &AllJoins) -> &Joins<Self> {
        &all.deleted
    }
}

/// The waiting entries of one kind, by queue. Each entry has a caller that waits for the answer, so the
/// callers bound their number.
#[derive(Debug)]
pub(crate) struct Joins<E>(Mutex<HashMap<LevelQueue, Group<E>>>);

impl<E> Default for Joins<E> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// Entries that wait for the same request.
#[derive(Debug)]
struct Group<E> {
    /// Distinguishes this group from others of the same queue.
    mark: Arc<()>,
    waiting: Vec<(E, Reply)>,
}

/// What to do after an entry was added.
#[derive(Debug)]
pub(crate) enum Joined<E> {
    /// The entry is the first of a group, which must be sent when its time is over.
    First(Arc<()>),
    /// The entry is in a group that another caller sends.
    Waits,
    /// The entry completes a group, which must be sent at once.
    Full(Vec<(E, Reply)>),
}

impl<E> Joins<E> {
    pub(crate) fn add(&self, level_queue: &LevelQueue, entry: E, reply: Reply) -> Joined<E> {
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(group) = groups.get_mut(level_queue) else {
            let mark = Arc::new(());
            let group = Group { mark: mark.clone(), waiting: vec![(entry, reply)] };
            groups.insert(level_queue.clone(), group);
            return Joined::First(mark);
        };
        group.waiting.push((entry, reply));
        if group.waiting.len() < BATCH {
            return Joined::Waits;
        }
        Joined::Full(groups.remove(level_queue).map(|group| group.waiting).unwrap_or_default())
    }

    /// Removes and returns the group with this mark, unless it is gone.
    pub(crate) fn take(&self, level_queue: &LevelQueue, mark: &Arc<()>) -> Vec<(E, Reply)> {
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if groups.get(level_queue).is_none_or(|group| !Arc::ptr_eq(&group.mark, mark)) {
            return Vec::new();
        }
        groups.remove(level_queue).map(|group| group.waiting).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use anyqueue::PartitionId;

    use super::*;

    fn add(joins: &Joins<usize>, level: u8, entry: usize) -> Joined<usize> {
        joins.add(&level_queue(level), entry, oneshot::channel().0)
    }

    fn level_queue(level: u8) -> LevelQueue {
        LevelQueue::new(&PartitionId::new("p").unwrap(), level)
    }

    fn entries(group: Vec<(usize, Reply)>) -> Vec<usize> {
        group.into_iter().map(|(entry, _)| entry).collect()
    }

    #[test]
    fn ten_of_one_queue_go_at_once_and_fewer_when_the_time_of_their_first_is_over() {
        let joins = Joins::default();
        let Joined::First(mark) = add(&joins, 0, 0) else { panic!("nobody was there") };
        assert!(matches!(add(&joins, 1, 100), Joined::First(_)), "another queue");
        for entry in 1..9 {
            assert!(matches!(add(&joins, 0, entry), Joined::Waits));
        }
        let Joined::Full(group) = add(&joins, 0, 9) else { panic!("ten are there") };
        assert_eq!(entries(group), (0..10).collect::<Vec<_>>());
        let Joined::First(next) = add(&joins, 0, 10) else { panic!("the others are gone") };
        assert!(joins.take(&level_queue(0), &mark).is_empty(), "the time of the next group is not over");
        assert_eq!(entries(joins.take(&level_queue(0), &next)), [10]);
    }
}
