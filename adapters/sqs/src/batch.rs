//! Many entries in full requests: by queue, ten at a time, side by side; each entry gets its own answer.

use std::collections::{HashMap, HashSet};

use anyqueue::{ErrorKind, RetryClass};
use futures_util::future::join_all;

use crate::entries::{BATCH, Entries};
use crate::entry::Entry;
use crate::error::{Refused, own, repeatable};
use crate::names::Place;
use crate::shared::Inner;

impl Inner {
    /// One answer per entry, in order.
    pub(crate) async fn request_all<E: Entry>(&self, entries: Vec<(Place, E)>) -> Entries {
        let mut answers: Vec<Option<Result<(), Refused>>> = entries.iter().map(|_| None).collect();
        let in_turn = has_groups(&entries);
        let batches = batches(entries, self.config.message_bytes);
        let answered = if in_turn {
            // Boxed, for the types of what it awaits are nested deeply.
            Box::pin(self.request_in_turn(batches)).await
        } else {
            join_all(batches.into_iter().map(async |batch| (self.request(&batch).await, batch.slots))).await
        };
        for (answered, slots) in answered {
            for (slot, answer) in slots.into_iter().zip(answered) {
                if let Some(place) = answers.get_mut(slot) {
                    *place = Some(answer);
                }
            }
        }
        let unanswered = || Err(own(ErrorKind::Internal, "an entry was not answered").into());
        answers.into_iter().map(|answer| answer.unwrap_or_else(unanswered)).collect()
    }

    /// One request after the other. What is behind a member of its group that failed for now is not sent, so that it is not stored first.
    async fn request_in_turn<E: Entry>(&self, batches: Vec<Batch<E>>) -> Vec<(Entries, Vec<usize>)> {
        let mut answered = Vec::with_capacity(batches.len());
        let mut stopped: HashSet<(Place, String)> = HashSet::new();
        for batch in batches {
            let batch = if stopped.is_empty() {
                batch
            } else {
                let (batch, behind) = batch.without(&stopped);
                answered.push((behind.iter().map(|_| Err(behind_failed())).collect(), behind));
                batch
            };
            if batch.entries.is_empty() {
                continue;
            }
            let answers = self.request(&batch).await;
            for (entry, answer) in batch.entries.iter().zip(&answers) {
                if let Some(group) = entry.group().filter(|_| is_to_be_repeated(answer)) {
                    stopped.insert((batch.place.clone(), group.to_owned()));
                }
            }
            answered.push((answers, batch.slots));
        }
        answered
    }

    async fn request<E: Entry>(&self, batch: &Batch<E>) -> Entries {
        let Batch { place, entries, .. } = batch;
        let url = if E::MAKES {
            self.queues.make(&self.server, place).await.map(Some)
        } else {
            self.queues.find(&self.server, place).await
        };
        let refused = match url {
            Ok(Some(url)) => {
                let answers = E::request(&self.server, &url, entries).await;
                if answers.iter().any(|answer| matches!(answer, Err(Refused::NoQueue))) {
                    self.queues.forget(place, &url);
                }
                return answers;
            }
            Ok(None) => Refused::NoQueue,
            // Finding or making a queue does nothing to the entries.
            Err(error) => repeatable(error).into(),
        };
        entries.iter().map(|_| Err(refused.clone())).collect()
    }
}

/// Whether several entries are of one group.
fn has_groups<E: Entry>(entries: &[(Place, E)]) -> bool {
    let mut seen = HashSet::new();
    !entries.iter().filter_map(|(_, entry)| entry.group()).all(|group| seen.insert(group))
}

/// Entries of one queue that share a request, and where their answers go.
struct Batch<E> {
    place: Place,
    slots: Vec<usize>,
    entries: Vec<E>,
    bytes: u64,
}

impl<E: Entry> Batch<E> {
    /// The batch without the members of these groups, and where those wait for their answers.
    fn without(self, stopped: &HashSet<(Place, String)>) -> (Self, Vec<usize>) {
        let Self { place, slots, entries, bytes } = self;
        let is_behind = |(_, entry): &(usize, E)| {
            entry.group().is_some_and(|group| stopped.contains(&(place.clone(), group.to_owned())))
        };
        let (behind, rest): (Vec<_>, Vec<_>) = slots.into_iter().zip(entries).partition(is_behind);
        let (slots, entries) = rest.into_iter().unzip();
        (Self { place, slots, entries, bytes }, behind.into_iter().map(|(slot, _)| slot).collect())
    }
}

/// Whether its caller may make it again: then nothing of its group is to overtake it.
fn is_to_be_repeated(answer: &Result<(), Refused>) -> bool {
    match answer {
        Ok(()) | Err(Refused::NotHeld) => false,
        Err(Refused::NoQueue) => true,
        Err(Refused::Failed(error)) => error.retry() != RetryClass::Never,
    }
}

fn behind_failed() -> Refused {
    let text = "not sent, for one before it in its group failed and would come after it";
    own(ErrorKind::Unavailable, text).with_retry(RetryClass::Safe).into()
}

/// Full batches, in the order of the entries of each queue.
fn batches<E: Entry>(entries: Vec<(Place, E)>, most_bytes: u64) -> Vec<Batch<E>> {
    let mut full = Vec::new();
    let mut open: HashMap<Place, Batch<E>> = HashMap::new();
    for (slot, (place, entry)) in entries.into_iter().enumerate() {
        let bytes = entry.bytes();
        let is_full = open
            .get(&place)
            .is_some_and(|batch| batch.entries.len() == BATCH || batch.bytes + bytes > most_bytes);
        if is_full && let Some(batch) = open.remove(&place) {
            full.push(batch);
        }
        let batch = open.entry(place.clone()).or_insert_with(|| Batch {
            place,
            slots: Vec::new(),
            entries: Vec::new(),
            bytes: 0,
        });
        batch.slots.push(slot);
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
        let place = |level| Place::new(&PartitionId::new("p").unwrap(), level);
        let message = |bytes: usize| Outgoing { body: "x".repeat(bytes), delay_secs: 0, sequence: None };
        let entries = (0..25).map(|index| (place(index % 2), message(1))).collect();
        let sizes = |entries: Vec<(Place, Outgoing)>| {
            let mut sizes: Vec<_> =
                batches(entries, 100).into_iter().map(|batch| (batch.place.level, batch.slots)).collect();
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
        let large = [60, 40, 1, 100, 100].map(|bytes| (place(0), message(bytes)));
        let expected = [vec![0, 1], vec![2], vec![3], vec![4]].map(|slots| (0, slots)).to_vec();
        assert_eq!(sizes(large.to_vec()), expected);
    }
}
