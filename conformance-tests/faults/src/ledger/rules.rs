//! The parts of a ledger's behaviour, each correct until a fault replaces it.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyqueue::PartitionId;
use anyqueue::adapter::{EndedCursor, EndedQuery, EndedTask, TaskEnd};

use crate::quirk::Client;

/// What a call does with ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    List,
    Count,
    Find,
    Delete,
    Record,
}

/// An end, its partition, and the client that stored it.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) partition: PartitionId,
    pub(super) by: usize,
    pub(super) ended: EndedTask,
}

impl Row {
    pub(super) fn has_lapsed(&self, now: SystemTime) -> bool {
        self.ended.expires_at.is_some_and(|expires| expires <= now)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// The time that this client gives to an end that it stores.
    pub(super) stamp: fn(&Client) -> SystemTime,
    /// Until when an end with this time is kept.
    pub(super) expires: fn(SystemTime, Option<Duration>) -> Option<SystemTime>,
    /// The current time, to decide whether the time of an end is over.
    pub(super) now: fn(&Client) -> SystemTime,
    /// The calls that see ends whose time is over.
    pub(super) sees_lapsed: &'static [Call],
    /// Whether a call for the first partition includes what is in the second one.
    pub(super) is_here: fn(Call, &PartitionId, &PartitionId) -> bool,
    /// Whether this client can see the end at all.
    pub(super) is_seen: fn(&Client, &Row) -> bool,
    pub(super) matches: fn(Call, &EndedQuery, &EndedTask) -> bool,
    /// The order of a list.
    pub(super) order: fn(&EndedCursor, &EndedCursor) -> Ordering,
    /// Whether an end that compares like this to where a page stopped, in the list's order and by time, is on
    /// a later page.
    pub(super) is_later: fn(in_order: Ordering, moments: Ordering) -> bool,
    /// An end as a list shows it.
    pub(super) listed: fn(&EndedTask) -> EndedTask,
    /// An end as it is found by id.
    pub(super) found: fn(&EndedTask) -> EndedTask,
    /// The result of a count, given this number of ends and this cap.
    pub(super) counted: fn(count: u64, cap: u64) -> u64,
    /// Frees at most `limit` ends.
    pub(super) purge: fn(&mut Vec<Row>, now: SystemTime, limit: usize) -> usize,
    /// What a client does with the ends when it starts, and when it closes.
    pub(super) at_init: fn(&Client, &mut Vec<Row>),
    pub(super) at_close: fn(&Client, &mut Vec<Row>),
}

pub(super) const RIGHT: Rules = Rules {
    stamp: |client| to_millis(client.server.wall()),
    expires: |ended_at, keep| keep.and_then(|keep| ended_at.checked_add(keep)),
    now: |client| client.server.wall(),
    sees_lapsed: &[],
    is_here: |_, asked, place| asked == place,
    is_seen: |_, _| true,
    matches: |_, query, ended| query.matches(ended.end.state, ended.ended_at),
    order: |one, other| other.cmp(one),
    is_later: |in_order, _| in_order.is_gt(),
    listed: without_result,
    found: Clone::clone,
    counted: u64::min,
    purge: |rows, now, limit| purge(rows, limit, |row| row.has_lapsed(now)),
    at_init: |_, _| {},
    at_close: |_, _| {},
};

/// Truncates to the millisecond.
pub(super) fn to_millis(time: SystemTime) -> SystemTime {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    time - Duration::from_nanos(u64::from(since.subsec_nanos() % 1_000_000))
}

pub(super) fn without_result(ended: &EndedTask) -> EndedTask {
    let mut end = TaskEnd::clone(&ended.end);
    end.result = None;
    EndedTask::new(ended.id, ended.ended_at, ended.expires_at, Arc::new(end))
}

/// Removes at most `limit` of these ends.
pub(super) fn purge(rows: &mut Vec<Row>, limit: usize, which: impl Fn(&Row) -> bool) -> usize {
    let mut left = limit;
    rows.extract_if(.., |row| {
        let goes = left > 0 && which(row);
        left -= usize::from(goes);
        goes
    })
    .count()
}
