//! Pages of messages, ordered by id. The server has no data structure in that order.

use std::collections::BTreeSet;
use std::time::Duration;

use anyqueue::{Browsed, Bytes, MessageId, MessageState, Operation, PartitionId, Result};
use redis::Value;

use crate::RedisQueue;
use crate::error::unexpected_reply;
use crate::names::partition_kind;
use crate::record;
use crate::reply::{bytes, count, exactly, int, list, optional_bytes, optional_list};
use crate::script;
use crate::window::start;

/// The ids of a partition with at most this many messages are listed in one call.
const MAX_LISTED: u64 = 2000;
/// How many messages one step of a scan reads.
const SCAN_COUNT: u64 = 200;
/// How many messages one call returns.
const MESSAGES_PER_CALL: usize = 50;

impl RedisQueue {
    /// Returns a page. Messages that disappear meanwhile are replaced by later ones, so a short page is the
    /// last one.
    pub(crate) async fn page(
        &self,
        partition: &PartitionId,
        after: Option<MessageId>,
        limit: usize,
    ) -> Result<Vec<Browsed>> {
        let (mut page, mut after) = (Vec::new(), after);
        while page.len() < limit {
            let wanted = limit - page.len();
            let ids = self.next_ids(partition, after, wanted).await?;
            for ids in ids.chunks(MESSAGES_PER_CALL) {
                self.show(partition, ids, &mut page).await?;
            }
            if ids.len() < wanted {
                break;
            }
            after = ids.last().copied();
        }
        Ok(page)
    }

    /// Returns the smallest ids above `after`, at most `limit`.
    async fn next_ids(
        &self,
        partition: &PartitionId,
        after: Option<MessageId>,
        limit: usize,
    ) -> Result<Vec<MessageId>> {
        let mut call = self.new_call(&script::LIST, partition, 1, 8);
        call.int(MAX_LISTED);
        let listed = optional_list(self.run(&call, Operation::Inspect).await?)?;
        let mut smallest = SmallestIds { after, limit, ids: BTreeSet::new() };
        match listed {
            Some(ids) => smallest.add(ids)?,
            None => self.scan_all(partition, &mut smallest).await?,
        }
        Ok(smallest.ids.into_iter().collect())
    }

    async fn scan_all(&self, partition: &PartitionId, smallest: &mut SmallestIds) -> Result<()> {
        let start = smallest.after.map_or([0; 6], start);
        let (mut window, mut cursor) = (Vec::new(), b"0".to_vec());
        loop {
            let mut call = self.new_call(&script::SCAN, partition, 5, 128);
            call.arg(&window).arg(&cursor).int(SCAN_COUNT).arg(&[partition_kind(partition)]);
            call.arg(&start);
            let [next, at, ids] = exactly(self.run(&call, Operation::Inspect).await?)?;
            smallest.add(list(ids)?)?;
            match optional_bytes(next)? {
                Some(next) if !smallest.is_complete_before(&next) => (window, cursor) = (next, bytes(at)?),
                _ => return Ok(()),
            }
        }
    }

    /// Adds these messages to the page, in as many calls as their size requires.
    pub(crate) async fn show(
        &self,
        partition: &PartitionId,
        ids: &[MessageId],
        page: &mut Vec<Browsed>,
    ) -> Result<()> {
        let mut left = ids;
        while !left.is_empty() {
            let mut call = self.new_call(&script::SHOW, partition, left.len() + 1, 32 * left.len() + 96);
            call.arg(&[partition_kind(partition)]);
            for id in left {
                call.arg(id.as_bytes());
            }
            let mut shown = list(self.run(&call, Operation::Inspect).await?)?.into_iter();
            let now_us = count(&shown.next().ok_or_else(unexpected_reply)?)?;
            let passed =
                usize::try_from(count(&shown.next().ok_or_else(unexpected_reply)?)?).unwrap_or(usize::MAX);
            for shown in shown {
                page.push(browsed(shown, now_us)?);
            }
            left = left.get(passed.max(1)..).unwrap_or_default();
        }
        Ok(())
    }
}

/// The smallest ids that were seen.
struct SmallestIds {
    after: Option<MessageId>,
    limit: usize,
    ids: BTreeSet<MessageId>,
}

impl SmallestIds {
    /// Whether no id that begins with these bytes, and no larger one, can belong to the page.
    fn is_complete_before(&self, window: &[u8]) -> bool {
        self.ids.len() >= self.limit && self.ids.last().is_none_or(|last| &last.as_bytes()[..] < window)
    }

    fn add(&mut self, ids: Vec<Value>) -> Result<()> {
        for id in ids {
            let Ok(id) = bytes(id)?.try_into() else { continue }; // the bytes of a lease are longer than an id
            let id = MessageId::from_bytes(id);
            if self.after.is_none_or(|after| id > after) && self.ids.insert(id) && self.ids.len() > self.limit
            {
                self.ids.pop_last();
            }
        }
        Ok(())
    }
}

fn browsed(shown: Value, now_us: u64) -> Result<Browsed> {
    let [state, deliveries, headers, record, due_us, id] = exactly(shown)?;
    let (record, headers) = (Bytes::from(bytes(record)?), optional_bytes(headers)?.map(Bytes::from));
    let (stored, unreadable) = match record::decode(&record, headers.clone()) {
        Ok(stored) => (stored, None),
        Err(why) => {
            let id = MessageId::from_bytes(bytes(id)?.try_into().map_err(|_| unexpected_reply())?);
            (record::undecoded(id, &record, headers, 0, now_us), Some(why))
        }
    };
    let state = match int(&state)? {
        1 => MessageState::Delayed,
        2 => MessageState::Leased,
        3 => MessageState::Disabled,
        _ => MessageState::Ready,
    };
    let age = stored.age(now_us);
    let deliveries = u32::try_from(count(&deliveries)?).unwrap_or(u32::MAX);
    let left = Duration::from_micros(count(&due_us)?.saturating_sub(now_us));
    let is_due_later = state == MessageState::Delayed || state == MessageState::Disabled && !left.is_zero();
    let due_in = is_due_later.then_some(left);
    let browsed = Browsed::new(stored.message, state).with_delivery_count(deliveries).with_age(age);
    Ok(browsed.with_due_in(due_in).with_unreadable(unreadable))
}
