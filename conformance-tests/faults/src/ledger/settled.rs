//! Ends that are not stored with their settlements, or with the wrong ones.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{
    Action, LedgerQueueStorage as _, PullQueueStorage as _, PullRequest, Settlement, TaskEnd, async_trait,
};
use anyqueue::{EndState, PartitionId, SettleOutcome};
use anyqueue_conformance::Fault;

use super::store::{BREAKS, find, is_settled, overwrite, with_end};
use crate::quirk::{Client, Entry, Pulled, Quirk, Settled, by, plain, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    plain(Fault::EndsForgotten, BREAKS, || Arc::new(Instead(forgotten))),
    plain(Fault::EndOfLostLease, BREAKS, || Arc::new(OfLostLease)),
    plain(Fault::ExchangeForgetsEnds, BREAKS, || Arc::new(ExchangeForgets)),
    plain(Fault::EndedMessageStays, BREAKS, || Arc::new(MessageStays)),
    subtle(Fault::EleventhEndLost, BREAKS, || Arc::new(Instead(eleventh_lost))),
    plain(Fault::EndsOfFirst, BREAKS, || Arc::new(Instead(of_first))),
    subtle(Fault::EndsStopAtLost, BREAKS, || Arc::new(StopAtLost)),
    plain(Fault::EndsOfOnePartition, BREAKS, || Arc::new(Instead(of_one_partition))),
    plain(Fault::EndWithSuccessorsLost, BREAKS, || Arc::new(Instead(lost_with_successors))),
    plain(Fault::EndUnasked, BREAKS, || Arc::new(Instead(unasked))),
    plain(Fault::EndLate, BREAKS, || Arc::new(Late)),
    subtle(Fault::SettledEndsMerge, BREAKS, || Arc::new(Unless(|former, end| former.rank() > end.rank()))),
    plain(Fault::FormerEndFound, BREAKS, || Arc::new(Unless(|_, _| true))),
];

/// Long enough to be noticed, and short compared with every wait.
const LATE: Duration = Duration::from_millis(200);

/// Stores other ends than those that the settlements of a batch carry.
#[derive(Debug)]
struct Instead(fn(&[Settlement]) -> Vec<Settlement>);

fn forgotten(settlements: &[Settlement]) -> Vec<Settlement> {
    settlements.iter().map(|settlement| with_end(settlement, None)).collect()
}

fn eleventh_lost(settlements: &[Settlement]) -> Vec<Settlement> {
    let eleventh = settlements.iter().enumerate().filter(|(_, it)| it.end.is_some()).nth(10);
    let eleventh = eleventh.map(|(at, _)| at);
    let instead = |(at, it): (usize, &Settlement)| {
        if Some(at) == eleventh { with_end(it, None) } else { it.clone() }
    };
    settlements.iter().enumerate().map(instead).collect()
}

fn of_first(settlements: &[Settlement]) -> Vec<Settlement> {
    let first = settlements.iter().find_map(|it| it.end.clone());
    settlements.iter().map(|it| with_end(it, it.end.as_ref().and(first.clone()))).collect()
}

fn of_one_partition(settlements: &[Settlement]) -> Vec<Settlement> {
    let first = settlements.iter().find(|it| it.end.is_some()).map(|it| &it.lease.partition);
    let is_first = |it: &Settlement| Some(&it.lease.partition) == first;
    settlements.iter().map(|it| with_end(it, it.end.clone().filter(|_| is_first(it)))).collect()
}

fn lost_with_successors(settlements: &[Settlement]) -> Vec<Settlement> {
    settlements.iter().map(|it| with_end(it, it.end.clone().filter(|_| it.then.is_empty()))).collect()
}

fn unasked(settlements: &[Settlement]) -> Vec<Settlement> {
    let made = |it: &Settlement| {
        let ends = it.action == Action::Remove && !it.lease.partition.is_dead_letters();
        ends.then(|| Arc::new(TaskEnd::new(EndState::Succeeded)))
    };
    settlements.iter().map(|it| with_end(it, it.end.clone().or_else(|| made(it)))).collect()
}

#[async_trait]
impl Quirk for Instead {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        client.right.settle(&(self.0)(settlements)).await
    }
}

#[derive(Debug)]
struct OfLostLease;

#[async_trait]
impl Quirk for OfLostLease {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let answers = client.right.settle(settlements).await;
        for (Settlement { lease, end, .. }, answer) in settlements.iter().zip(&answers) {
            if let Some(end) = end.as_ref().filter(|_| matches!(answer, Ok(SettleOutcome::Lost))) {
                let _ = overwrite(client, &lease.partition, lease.id, end).await;
            }
        }
        answers
    }
}

#[derive(Debug)]
struct ExchangeForgets;

#[async_trait]
impl Quirk for ExchangeForgets {
    async fn exchange(
        &self,
        client: &Client,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Settled, Pulled) {
        client.right.exchange(&forgotten(settlements), partition, request).await
    }
}

#[derive(Debug)]
struct MessageStays;

#[async_trait]
impl Quirk for MessageStays {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let released = |it: &Settlement| {
            if it.end.is_some() { with_end(&by(it, Action::Release), None) } else { it.clone() }
        };
        let answers = client.right.settle(&settlements.iter().map(released).collect::<Vec<_>>()).await;
        for (Settlement { lease, end, .. }, answer) in settlements.iter().zip(&answers) {
            if let Some(end) = end.as_ref().filter(|_| is_settled(answer)) {
                let _ = overwrite(client, &lease.partition, lease.id, end).await;
            }
        }
        answers
    }
}

#[derive(Debug)]
struct StopAtLost;

#[async_trait]
impl Quirk for StopAtLost {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let mut answers: Settled = Vec::new();
        for settlement in settlements {
            let goes_on = answers.iter().all(is_settled);
            let settlement = with_end(settlement, settlement.end.clone().filter(|_| goes_on));
            answers.extend(client.right.settle(&[settlement]).await);
        }
        answers
    }
}

#[derive(Debug)]
struct Late;

#[async_trait]
impl Quirk for Late {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let answers = client.right.settle(&forgotten(settlements)).await;
        let settled = settlements.iter().zip(&answers).filter(|(_, answer)| is_settled(answer));
        let settled: Vec<_> = settled.map(|(settlement, _)| settlement.clone()).collect();
        let right = client.right.clone();
        tokio::spawn(async move {
            tokio::time::sleep(LATE).await;
            for Settlement { lease, end, .. } in settled {
                if let Some(end) = end {
                    right.record_ended(&lease.partition, &[(lease.id, end)]).await;
                }
            }
        });
        answers
    }
}

/// Does not store an end if the former one compares to it in this way.
#[derive(Debug)]
struct Unless(fn(former: &TaskEnd, end: &TaskEnd) -> bool);

#[async_trait]
impl Quirk for Unless {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let mut instead = Vec::with_capacity(settlements.len());
        for settlement in settlements {
            let Settlement { lease, end, .. } = settlement;
            let former = if end.is_some() { find(client, &lease.partition, lease.id).await } else { None };
            let stays = |end: &Arc<TaskEnd>| former.as_ref().is_some_and(|former| (self.0)(former, end));
            instead.push(with_end(settlement, end.clone().filter(|end| !stays(end))));
        }
        client.right.settle(&instead).await
    }
}
