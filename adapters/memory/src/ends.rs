//! The ends of tasks that a store keeps.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyqueue::adapter::{EndedCursor, EndedQuery, EndedTask, TaskEnd};
use anyqueue::{MessageId, PartitionId};

/// The most expired ends that are freed with each new one: two, so that they do not outnumber the living ones
/// for long.
const FREED_WITH_EACH: usize = 2;

/// The ends of tasks, by partition. There is one for each task.
#[derive(Debug)]
pub(crate) struct Ends {
    most: usize,
    /// The limit for the bytes of all results.
    most_bytes: u64,
    bytes: u64,
    partitions: HashMap<PartitionId, OfPartition>,
    lapsing: BTreeMap<Lapse, (PartitionId, MessageId)>,
    /// Distinguishes ends that expire at the same moment.
    last_number: u64,
}

/// When an end expires, and its number. Ends that are kept until they are deleted sort last, under a time
/// that no clock ever shows.
type Lapse = (SystemTime, u64);
const NEVER: Duration = Duration::from_secs(1 << 40);

#[derive(Debug, Default)]
struct OfPartition {
    by_moment: BTreeMap<EndedCursor, (EndedTask, Lapse)>,
    by_id: HashMap<MessageId, EndedCursor>,
}

impl Ends {
    pub(crate) fn new(most: usize, most_bytes: u64) -> Self {
        Self {
            most,
            most_bytes,
            bytes: 0,
            partitions: HashMap::new(),
            lapsing: BTreeMap::new(),
            last_number: 0,
        }
    }

    /// Stores an end, in place of an earlier one of the same task. If a limit is exceeded, the ends that
    /// expire first are dropped.
    pub(crate) fn store(
        &mut self,
        partition: &PartitionId,
        id: MessageId,
        end: &Arc<TaskEnd>,
        now: SystemTime,
    ) {
        self.purge(now, FREED_WITH_EACH);
        self.remove(partition, id);
        let ended_at = to_millis(now);
        let expires_at = end.keep.and_then(|keep| ended_at.checked_add(keep));
        let ended = EndedTask::new(id, ended_at, expires_at, Arc::clone(end));
        self.last_number += 1;
        let lapse = (expires_at.unwrap_or(SystemTime::UNIX_EPOCH + NEVER), self.last_number);
        let of_partition = self.partitions.entry(partition.clone()).or_default();
        of_partition.by_id.insert(id, ended.cursor());
        of_partition.by_moment.insert(ended.cursor(), (ended, lapse));
        self.lapsing.insert(lapse, (partition.clone(), id));
        self.bytes += result_bytes(end);
        while self.lapsing.len() > self.most || self.bytes > self.most_bytes {
            self.pop_first();
        }
    }

    pub(crate) fn remove(&mut self, partition: &PartitionId, id: MessageId) {
        let Some(of_partition) = self.partitions.get_mut(partition) else { return };
        let Some(cursor) = of_partition.by_id.remove(&id) else { return };
        if let Some((ended, lapse)) = of_partition.by_moment.remove(&cursor) {
            self.lapsing.remove(&lapse);
            self.bytes -= result_bytes(&ended.end);
        }
        if of_partition.by_id.is_empty() {
            self.partitions.remove(partition);
        }
    }

    fn pop_first(&mut self) {
        if let Some((_, (partition, id))) =
            self.lapsing.first_key_value().map(|(lapse, of)| (*lapse, of.clone()))
        {
            self.remove(&partition, id);
        }
    }

    /// Frees up to `limit` expired ends, and returns how many there were.
    pub(crate) fn purge(&mut self, now: SystemTime, limit: usize) -> usize {
        let mut purged = 0;
        while purged < limit && self.lapsing.first_key_value().is_some_and(|((lapses, _), _)| *lapses <= now)
        {
            self.pop_first();
            purged += 1;
        }
        purged
    }

    pub(crate) fn find(&self, partition: &PartitionId, id: MessageId, now: SystemTime) -> Option<&EndedTask> {
        let of_partition = self.partitions.get(partition)?;
        let (ended, _) = of_partition.by_moment.get(of_partition.by_id.get(&id)?)?;
        is_kept(ended, now).then_some(ended)
    }

    pub(crate) fn newest_first<'a>(
        &'a self,
        partition: &PartitionId,
        query: &'a EndedQuery,
        after: Option<EndedCursor>,
        now: SystemTime,
    ) -> impl Iterator<Item = &'a EndedTask> {
        let end = after.map_or(Bound::Unbounded, Bound::Excluded);
        let ends = self.partitions.get(partition).into_iter();
        let ends = ends.flat_map(move |ends| ends.by_moment.range((Bound::Unbounded, end)).rev());
        ends.map(|(_, (ended, _))| ended)
            .take_while(|ended| query.since.is_none_or(|since| ended.ended_at >= since))
            .filter(move |ended| is_kept(ended, now) && query.matches(ended.end.state, ended.ended_at))
    }
}

fn result_bytes(end: &TaskEnd) -> u64 {
    end.result.as_ref().map_or(0, |result| result.len() as u64)
}

fn is_kept(ended: &EndedTask, now: SystemTime) -> bool {
    ended.expires_at.is_none_or(|expires| expires > now)
}

/// Truncates a time to milliseconds, as every backend reports it.
pub(crate) fn to_millis(time: SystemTime) -> SystemTime {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use anyqueue::EndState;

    use super::*;

    #[test]
    fn beyond_the_most_ends_and_bytes_those_that_lapse_first_go() {
        let (p, now) = (PartitionId::new("p").unwrap(), SystemTime::UNIX_EPOCH);
        let end = |secs, bytes| {
            let end = TaskEnd::new(EndState::Succeeded).with_keep(Some(Duration::from_secs(secs)));
            Arc::new(end.with_result(vec![0; bytes]))
        };
        let mut ends = Ends::new(3, 100);
        let ids: Vec<_> = (0..5).map(|number| MessageId::from_bytes([number; 16])).collect();
        let kept =
            |ends: &Ends| -> Vec<bool> { ids.iter().map(|id| ends.find(&p, *id, now).is_some()).collect() };
        for (id, secs) in ids.iter().zip([10, 5, 20, 30]) {
            ends.store(&p, *id, &end(secs, 10), now);
        }
        assert_eq!(kept(&ends), [true, false, true, true, false], "three, without the one that lapses first");
        ends.store(&p, ids[4], &end(40, 85), now);
        assert_eq!(kept(&ends), [false, false, false, true, true], "95 bytes of results");
        ends.store(&p, ids[4], &end(40, 10), now);
        assert_eq!(ends.bytes, 20, "a former end is no longer counted");
        ends.store(&p, ids[0], &end(50, 101), now);
        assert_eq!((kept(&ends), ends.bytes), (vec![false; 5], 0), "one by itself may be too much");
    }
}
