//! Many entries in full requests: ten at a time for each queue, concurrently. Each entry gets its own result.

use std::collections::{HashMap, HashSet};

use anyqueue::{ErrorKind, RetryClass};
use futures_util::future::join_all;

use crate::entries::{BATCH, Entries};
use crate::entry::Entry;
use crate::error::{ERRORS, Refused};
use crate::names::LevelQueue;
use crate::shared::Inner;

impl Inner {
    /// Sends entries. Returns one result per entry, in order.
    pub(crate) async fn request_all<E: Entry>(&self, entries: Vec<(LevelQueue, E)>) -> Entries {
        let mut answers: Vec<Option<Result<(), Refused>>> = entries.iter().map(|_| None).collect();
        let in_turn = has_groups(&entries);
        let batches = batches(entries, self.config.message_bytes);
        let answered = if in_turn {
            // Boxed, because the types of the futures are deeply nested.
            Box::pin(self.request_in_turn(batches)).await
        } else {
            join_all(batches.into_iter().map(async |batch| (self.request(&batch).await, batch.indexes))).await
        };
        for (answered, indexes) in answered {
            for (index, answer) in indexes.into_iter().zip(answered) {
                if let Some(answer_slot) = answers.get_mut(index) {
                    *answer_slot = Some(answer);
                }
            }
        }
        let unanswered = || Err(ERRORS.error(ErrorKind::Internal, "an entry was not answered").into());
        answers.into_iter().map(|answer| answer.unwrap_or_else(unanswered)).collect()
    }

    /// Sends one request after the other. If a member of a group fails with an error after which it may be
    /// repeated, its followers are not sent, so that they do not overtake it.
    async fn request_in_turn<E: Entry>(&self, batches: Vec<Batch<E>>) -> Vec<(Entries, Vec<usize>)> {
        let mut answered = Vec::with_capacity(batches.len());
        let mut stopped: HashSet<(LevelQueue, String)> = HashSet::new();
        for batch in batches {
            let batch = if stopped.is_empty() {
                batch
            } else {
                let (batch, followers) = batch.without(&stopped);
                answered.push((followers.iter().map(|_| Err(behind_failed())).collect(), followers));
                batch
            };
            if batch.entries.is_empty() {
                continue;
            }
            let answers = self.request(&batch).await;
            for (entry, answer) in batch.entries.iter().zip(&answers) {
                if let Some(group) = entry.group().filter(|_| is_to_be_repeated(answer)) {
                    stopped.insert((batch.level_queue.clone(), group.to_owned()));
                }
            }
            answered.push((answers, batch.indexes));
        }
        answered
    }

    async fn request<E: Entry>(&self, batch: &Batch<E>) -> Entries {
        let Batch { level_queue, entries, .. } = batch;
        let url = if E::CREATES {
            self.queues.find_or_create(&self.server, level_queue).await.map(Some)
        } else {
            self.queues.find(&self.server, level_queue).await
        };
        let refused = match url {
            Ok(Some(url)) => {
                let answers = E::request(&self.server, &url, entries).await;
                if answers.iter().any(|answer| matches!(answer, Err(Refused::NoQueue))) {
                    self.queues.forget(level_queue, &url);
                }
                return answers;
            }
            Ok(None) => Refused::NoQueue,
            // A failure to find or create the queue does not affect the entries.
            Err(error) => error.repeatable().into(),
        };
        entries.iter().map(|_| Err(refused.clone())).collect()
    }
}

/// Whether several entries belong to the same group.
fn has_groups<E: Entry>(entries: &[(LevelQueue, E)]) -> bool {
    let mut seen = HashSet::new();
    !entries.iter().filter_map(|(_, entry)| entry.group()).all(|group| seen.insert(group))
}

/// Entries of one queue that share a request, with the indexes of their results.
struct Batch<E> {
    level_queue: LevelQueue,
    indexes: Vec<usize>,
    entries: Vec<E>,
    bytes: u64,
}

impl<E: Entry> Batch<E> {
    /// Returns the batch without the members of these groups, and the indexes of their results.
    fn without(self, stopped: &HashSet<(LevelQueue, String)>) -> (Self, Vec<usize>) {
        let Self { level_queue, indexes, entries, bytes } = self;
        let is_behind = |(_, entry): &(usize, E)| {
            entry.group().is_some_and(|group| stopped.contains(&(level_queue.clone(), group.to_owned())))
        };
        let (followers, rest): (Vec<_>, Vec<_>) = indexes.into_iter().zip(entries).partition(is_behind);
        let (indexes, entries) = rest.into_iter().unzip();
        (
            Self { level_queue, indexes, entries, bytes },
            followers.into_iter().map(|(index, _)| index).collect(),
        )
    }
}

/// Whether the caller may repeat the entry. Then no follower of its group may overtake it.
fn is_to_be_repeated(answer: &Result<(), Refused>) -> bool {
    match answer {
        Ok(()) | Err(Refused::NotHeld) => false,
        Err(Refused::NoQueue) => true,
        Err(Refused::Failed(error)) => error.retry() != RetryClass::Never,
    }
}

fn behind_failed() -> Refused {
    let text = "not sent, because an earlier message of its group failed and would come after it";
    ERRORS.error(ErrorKind::Unavailable, text).with_retry(RetryClass::Safe).into()
}

/// Splits entries into full batches. Each queue keeps its order.
fn batches<E: Entry>(entries: Vec<(LevelQueue, E)>, max_bytes: u64) -> Vec<Batch<E>> {
    let mut full = Vec::new();
    let mut open: HashMap<LevelQueue, Batch<E>> = HashMap::new();
    for (index, (level_queue, entry)) in entries.into_iter().enumerate() {
        let bytes = entry.bytes();
        let is_full = open
            .get(&level_queue)
            .is_some_and(|batch| batch.entries.len() == BATCH || batch.bytes + bytes > max_bytes);
        if is_full && let Some(batch) = open.remove(&level_queue) {
            full.push(batch);
        }
        let batch = open.entry(level_queue.clone()).or_insert_with(|| Batch {
            level_queue,
            indexes: Vec::new(),
            entries: Vec::new(),
            bytes: 0,
        });
        batch.indexes.push(index);
        batch.entries.push(entry);
        batch.bytes += bytes;
    }
    full.extend(open.into_values());
    full
}

#[cfg(test)]
mod tests {
    use anyqueue::PartitionId;

    use super::*;
    use crate::entries::Outgoing;

    #[test]
    fn batches_are_full_by_number_and_by_size_and_keep_the_order_of_each_queue() {
        let level_queue = |level| LevelQueue::new(&PartitionId::new("p").unwrap(), level);
        let message = |bytes: usize| Outgoing { body: "x".repeat(bytes), delay_secs: 0, fifo_ids: None };
        let entries = (0..25).map(|index| (level_queue(index % 2), message(1))).collect();
        let sizes = |entries: Vec<(LevelQueue, Outgoing)>| {
            let mut sizes: Vec<_> = batches(entries, 100)
                .into_iter()
                .map(|batch| (batch.level_queue.level, batch.indexes))
                .collect();
            sizes.sort();
            sizes
        };
        let even: Vec<usize> = (0..25).step_by(2).collect();
        let odd: Vec<usize> = (0..25).skip(1).step_by(2).collect();
        let expected = vec![
            (0, even[..10].to_vec()),
            (0, even[10..].to_vec()),
            (1, odd[..10].to_vec()),
            (1, odd[10..].to_vec()),
        ];
        assert_eq!(sizes(entries), expected);
        let large = [60, 40, 1, 100, 100].map(|bytes| (level_queue(0), message(bytes)));
        let expected = [vec![0, 1], vec![2], vec![3], vec![4]].map(|indexes| (0, indexes)).to_vec();
        assert_eq!(sizes(large.to_vec()), expected);
    }
}
