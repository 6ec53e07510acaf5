//! Faults of successors.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{
    Action, Lease, PullQueueStorage as _, PullRequest, PushQueueStorage as _, Settlement, Successor,
    async_trait,
};
use anyqueue::{
    Error, ErrorKind, MessageData, MessageId, PartitionId, PushOutcome, SettleOutcome, TaskOptions,
};
use anyqueue_conformance::{Clause, Fault};

use crate::quirk::{Client, Entry, Kept, Pulled, Quirk, Settled, plain, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    plain(Fault::SuccessorsDropped, BREAKS, || Arc::new(Instead(dropped))),
    plain(Fault::SuccessorsWithParent, BREAKS, || Arc::new(Instead(with_parent))),
    subtle(Fault::SuccessorsOfRemovalsOnly, BREAKS, || Arc::new(Instead(of_removals_only))),
    plain(Fault::FirstSuccessorOnly, BREAKS, || Arc::new(Instead(first_only))),
    subtle(Fault::EleventhSuccessorLost, BREAKS, || Arc::new(Instead(eleventh_lost))),
    subtle(Fault::SuccessorsReversed, BREAKS, || Arc::new(Instead(reversed))),
    plain(Fault::SuccessorsAsText, BREAKS, || Arc::new(Instead(as_text))),
    plain(Fault::SuccessorsWithoutOptions, BREAKS, || Arc::new(Instead(without_options))),
    subtle(Fault::SuccessorsAheadOfGroup, BREAKS, || Arc::new(AheadOfGroup)),
    plain(Fault::SuccessorsLate, BREAKS, || Arc::new(Late)),
    plain(Fault::ExchangeForgetsSuccessors, BREAKS, || Arc::new(ExchangeForgets)),
    plain(Fault::SuccessorsOfFirstSettlement, BREAKS, || Arc::new(FirstSettlement)),
    plain(Fault::SuccessorsOfLost, BREAKS, || Arc::new(OfLost)),
    plain(Fault::SuccessorsOfRepeated, BREAKS, || Arc::<OfRepeated>::default()),
    subtle(Fault::LostStopsSuccessors, BREAKS, || Arc::new(LostStops)),
    subtle(Fault::SuccessorsBeforeEnd, BREAKS, || Arc::new(BeforeEnd)),
    subtle(Fault::DuplicateSuccessorFails, BREAKS, || Arc::new(DuplicateFails)),
    plain(Fault::SuccessorsIgnoreKeys, BREAKS, || Arc::new(IgnoreKeys)),
];

/// Empty: these faults were written together with the cases that find them, not from the contract alone.
const BREAKS: &[Clause] = &[];

/// Stores other successors than those that were given.
#[derive(Debug)]
struct Instead(fn(&Settlement) -> Vec<Successor>);

fn dropped(_: &Settlement) -> Vec<Successor> {
    Vec::new()
}

fn with_parent(settlement: &Settlement) -> Vec<Successor> {
    let here = |it: &Successor| Successor { partition: settlement.lease.partition.live(), ..it.clone() };
    settlement.then.iter().map(here).collect()
}

fn of_removals_only(settlement: &Settlement) -> Vec<Successor> {
    if settlement.action == Action::Remove { settlement.then.clone() } else { Vec::new() }
}

fn first_only(settlement: &Settlement) -> Vec<Successor> {
    settlement.then.iter().take(1).cloned().collect()
}

fn eleventh_lost(settlement: &Settlement) -> Vec<Successor> {
    settlement.then.iter().enumerate().filter(|(at, _)| *at != 10).map(|(_, it)| it.clone()).collect()
}

fn reversed(settlement: &Settlement) -> Vec<Successor> {
    settlement.then.iter().rev().cloned().collect()
}

fn as_text(settlement: &Settlement) -> Vec<Successor> {
    changed(settlement, |message| {
        let text = String::from_utf8_lossy(message.payload()).into_owned();
        with_payload(message, text)
    })
}

fn without_options(settlement: &Settlement) -> Vec<Successor> {
    changed(settlement, |message| message.clone().with_options(TaskOptions::default()))
}

fn changed(settlement: &Settlement, change: impl Fn(&MessageData) -> MessageData) -> Vec<Successor> {
    let one = |it: &Successor| Successor { partition: it.partition.clone(), message: change(&it.message) };
    settlement.then.iter().map(one).collect()
}

/// Returns the same message with another payload.
fn with_payload(message: &MessageData, payload: String) -> MessageData {
    let mut made = MessageData::with_id(message.id(), payload)
        .with_headers(message.headers().clone())
        .with_options(message.options().clone());
    if let Some(task) = message.task_id() {
        made = made.with_task_id(task);
    }
    if let Some(session) = message.session_id() {
        made = made.with_session_id(session);
    }
    made
}

#[async_trait]
impl Quirk for Instead {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let instead = |settlement: &Settlement| bare(settlement).with_then((self.0)(settlement));
        client.right.settle(&settlements.iter().map(instead).collect::<Vec<_>>()).await
    }
}

/// Returns the settlement without its successors.
fn bare(settlement: &Settlement) -> Settlement {
    settlement.clone().with_then(Vec::new())
}

fn settled(answer: &anyqueue::Result<SettleOutcome>) -> bool {
    matches!(answer, Ok(SettleOutcome::Settled))
}

/// Stores successors by separate pushes.
async fn push_all(client: &Client, then: &[Successor]) -> Vec<anyqueue::Result<PushOutcome>> {
    let mut answers = Vec::new();
    for Successor { partition, message } in then {
        answers.push(client.push_one(partition, message.clone()).await);
    }
    answers
}

/// Settles each on its own, by calling `end`.
async fn one_by_one<'a, F>(settlements: &'a [Settlement], mut end: impl FnMut(&'a Settlement) -> F) -> Settled
where
    F: Future<Output = anyqueue::Result<SettleOutcome>> + Send,
{
    let mut answers = Vec::new();
    for settlement in settlements {
        answers.push(end(settlement).await);
    }
    answers
}

/// Stores a successor's group under another name, and shows the right one, so that nothing ahead of it in the
/// group keeps it waiting.
#[derive(Debug)]
struct AheadOfGroup;

#[async_trait]
impl Quirk for AheadOfGroup {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let instead = |settlement: &Settlement| {
            let then = changed(settlement, |message| {
                let mut options = message.options().clone();
                options.group = options.group.map(|group| format!("{group} ahead").into());
                message.clone().with_options(options)
            });
            bare(settlement).with_then(then)
        };
        client.right.settle(&settlements.iter().map(instead).collect::<Vec<_>>()).await
    }

    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let mut got = client.right.pull(partition, request).await?;
        for delivery in &mut got {
            let mut options = delivery.message.options().clone();
            if let Some(group) = options.group.as_deref().and_then(|group| group.strip_suffix(" ahead")) {
                options.group = Some(group.into());
                delivery.message = delivery.message.clone().with_options(options);
            }
        }
        Ok(got)
    }
}

#[derive(Debug)]
struct Late;

#[async_trait]
impl Quirk for Late {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let bare: Vec<_> = settlements.iter().map(bare).collect();
        let answers = client.right.settle(&bare).await;
        let ended = settlements.iter().zip(&answers).filter(|(_, answer)| settled(answer));
        let then: Vec<_> = ended.flat_map(|(settlement, _)| settlement.then.clone()).collect();
        let right = client.right.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(20)).await;
            for Successor { partition, message } in then {
                right.push(&partition, &[message]).await;
            }
        });
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
        let bare: Vec<_> = settlements.iter().map(bare).collect();
        client.right.exchange(&bare, partition, request).await
    }
}

#[derive(Debug)]
struct FirstSettlement;

#[async_trait]
impl Quirk for FirstSettlement {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let first = settlements.iter().position(|settlement| !settlement.then.is_empty());
        let one = |(at, settlement): (usize, &Settlement)| {
            if Some(at) == first { settlement.clone() } else { bare(settlement) }
        };
        client.right.settle(&settlements.iter().enumerate().map(one).collect::<Vec<_>>()).await
    }
}

#[derive(Debug)]
struct OfLost;

#[async_trait]
impl Quirk for OfLost {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        one_by_one(settlements, async |settlement| {
            let answer = client.settle_by(settlement, settlement.action.clone()).await;
            if !settled(&answer) {
                push_all(client, &settlement.then).await;
            }
            answer
        })
        .await
    }
}

/// The leases that it has settled itself.
#[derive(Debug, Default)]
struct OfRepeated(Kept<HashSet<Lease>>);

#[async_trait]
impl Quirk for OfRepeated {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        one_by_one(settlements, async |settlement| {
            let again = !self.0.lock().insert(settlement.lease.clone());
            let answer = client.settle_by(settlement, settlement.action.clone()).await;
            if again && !settled(&answer) {
                push_all(client, &settlement.then).await;
            }
            answer
        })
        .await
    }
}

#[derive(Debug)]
struct LostStops;

#[async_trait]
impl Quirk for LostStops {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let mut answers: Settled = Vec::new();
        for settlement in settlements {
            let stopped = answers.iter().any(|answer| !settled(answer));
            let settlement = if stopped { bare(settlement) } else { settlement.clone() };
            answers.extend(client.right.settle(&[settlement]).await);
        }
        answers
    }
}

/// Checks the lease first: the successors of a lost owner are not stored.
#[derive(Debug)]
struct BeforeEnd;

#[async_trait]
impl Quirk for BeforeEnd {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        one_by_one(settlements, async |settlement| {
            if !settlement.then.is_empty() && client.holds(&settlement.lease).await {
                push_all(client, &settlement.then).await;
            }
            client.settle_one(settlement.lease.clone(), settlement.action.clone()).await
        })
        .await
    }
}

#[derive(Debug)]
struct DuplicateFails;

#[async_trait]
impl Quirk for DuplicateFails {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        one_by_one(settlements, async |settlement| {
            let answer = client.settle_one(settlement.lease.clone(), settlement.action.clone()).await;
            if !settled(&answer) {
                return answer;
            }
            let pushed = push_all(client, &settlement.then).await;
            let duplicate = pushed.iter().any(|answer| matches!(answer, Ok(PushOutcome::Duplicate(_))));
            if duplicate {
                Err(Error::new(ErrorKind::InvalidInput, "a successor is there already"))
            } else {
                answer
            }
        })
        .await
    }
}

#[derive(Debug)]
struct IgnoreKeys;

#[async_trait]
impl Quirk for IgnoreKeys {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        one_by_one(settlements, async |settlement| {
            let answer = client.settle_by(settlement, settlement.action.clone()).await;
            if settled(&answer) && !settlement.then.is_empty() {
                for Successor { partition, message } in &settlement.then {
                    let mut options = message.options().clone();
                    options.dedup_key = None;
                    let copy =
                        MessageData::with_id(MessageId::new(), message.payload_bytes()).with_options(options);
                    if message.options().dedup_key.is_some()
                        || client.find(partition, message.id()).await.is_some()
                    {
                        let _ = client.push_one(partition, copy).await;
                    }
                }
            }
            answer
        })
        .await
    }
}
