//! A deep queue works as well as a shallow one: a million messages in the thorough tier.

use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, Storage};
use anyqueue::{MessageData, MessageId, PartitionId, PushOutcome};

use crate::case::Case;
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "backlog.deep", [Order, Resources], deep)
        .needs(&[Need::StrictPriority, Need::PushOrder, Need::Purge])
        .kills(&[Fault::SearchesBacklog, Fault::TiesReversed, Fault::PriorityIgnored])
        .deadline(DEADLINE),
    case!(Storage, "backlog.counted_and_purged", [Inspection, Deletion, Resources], counted_and_purged)
        .needs(&[Need::Counts, Need::Purge])
        .kills(&[Fault::LosesEleventh])
        .deadline(DEADLINE),
];

const DEADLINE: Duration = Duration::from_mins(10);

/// The longest time that pushing the backlog may take; a slower backend is tested with what it has by then.
const FILLING: Duration = Duration::from_mins(3);

/// How many pulls are made; the fastest is compared.
const LOOKS: usize = 20;

/// How many messages one step of a purge may take.
const STEP: usize = 1000;

/// Pushes a deep backlog outside of the history, and returns how many messages it has.
async fn fill(c: &Context, unseen: &dyn Storage, p: &PartitionId) -> CaseResult<usize> {
    let (wanted, begin) = (c.size(2_000, 1_000_000), Instant::now());
    let batch = c.capabilities().limits.push_batch.min(1000);
    let mut count = 0;
    while count < wanted && begin.elapsed() < FILLING {
        let numbers = count..wanted.min(count + batch);
        let messages: Vec<_> = numbers.map(|n| MessageData::new(format!("backlog {n}"))).collect();
        for answer in unseen.push(p, &messages).await {
            let stored = matches!(c.ok(Clause::Stored, "a push", answer)?, PushOutcome::Stored(_));
            c.check(Clause::Stored, &[], stored, "Stored", "Duplicate")?;
        }
        count += messages.len();
    }
    Ok(count)
}

/// Empties the partition and returns how many messages it had.
async fn clear(c: &Context, unseen: &dyn Storage, p: &PartitionId) -> CaseResult<usize> {
    let Some(inspect) = unseen.inspect() else { return Ok(0) };
    let mut purged = 0;
    loop {
        let step = c.ok(Clause::Deletion, "a purge", inspect.purge(p, STEP).await)?;
        purged += step;
        if step < STEP {
            return Ok(purged);
        }
    }
}

/// Returns the fastest of several rounds of one pull and one settlement, and the messages they took out.
async fn fastest_round(c: &Context, p: &PartitionId) -> CaseResult<(Duration, Vec<MessageId>)> {
    let (mut fastest, mut taken) = (Duration::MAX, Vec::new());
    for _ in 0..LOOKS {
        let begin = Instant::now();
        let got = c.client().take(p, 1).await?;
        c.client().settle_all(&got, &Action::Remove).await?;
        fastest = fastest.min(begin.elapsed());
        taken.extend(got.iter().map(|delivery| delivery.message.id()));
    }
    Ok((fastest, taken))
}

/// At the front of a deep queue, order, priority and speed are those of a shallow one.
async fn deep(c: &Context) -> CaseResult {
    let (shallow, p) = (c.partition("shallow")?, c.partition("deep")?);
    let before = fastest_of_shallow(c, &shallow).await?;

    let first = c.client().push(&p, &c.messages(LOOKS, |_, message| message)).await?;
    let unseen = c.unseen().await?;
    let count = fill(c, &*unseen, &p).await?;
    let (fastest, taken) = fastest_round(c, &p).await?;
    c.equal(Clause::Order, &taken, "the first of a deep queue", &first, &taken)?;

    let urgent = c.client().push(&p, &[c.message().with_priority(1)]).await?;
    let got = c.client().take(&p, 1).await?;
    c.in_order(Clause::Order, "the urgent message, ahead of the backlog", &urgent, &got)?;
    c.client().remove(&got).await?;
    let purged = clear(c, &*unseen, &p).await?;
    c.equal(Clause::Deletion, &[], "the number purged", &count, &purged)?;
    c.ok(Clause::Close, "closing", unseen.close().await)?;

    // Measure again: other work on the machine may have begun meanwhile.
    let expected = before.max(fastest_of_shallow(c, &shallow).await?);
    // Ten times is far beyond noise, and far below what a search of the backlog would take.
    let most = expected * 10 + Duration::from_millis(20);
    let told = format!(
        "a pull and a settlement within {most:?} before {count} messages, as {expected:?} did before none"
    );
    c.check(Clause::Resources, &[], fastest <= most, told, format!("{fastest:?} at the fastest"))
}

async fn fastest_of_shallow(c: &Context, shallow: &PartitionId) -> CaseResult<Duration> {
    c.client().push(shallow, &c.messages(LOOKS, |_, message| message)).await?;
    Ok(fastest_round(c, shallow).await?.0)
}

/// A deep queue is counted exactly, and purged in steps of the requested size.
async fn counted_and_purged(c: &Context) -> CaseResult {
    let (p, unseen) = (c.partition("deep")?, c.unseen().await?);
    let count = fill(c, &*unseen, &p).await?;
    if let Some(inspect) = unseen.inspect() {
        let counts = c.ok(Clause::Inspection, "counts", inspect.counts(&p).await)?;
        c.equal(Clause::Inspection, &[], "the number that is ready", &Some(count as u64), &counts.ready)?;
    }
    let purged = clear(c, &*unseen, &p).await?;
    c.equal(Clause::Deletion, &[], "the number purged", &count, &purged)?;
    c.ok(Clause::Close, "closing", unseen.close().await)
}
