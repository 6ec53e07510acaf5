//! A deep queue is as good as a shallow one: a million messages in the thorough tier.

use std::time::{Duration, Instant};

use anyqueue::{Action, MessageId, PartitionId};

use crate::case::{Case, CaseResult, Need};
use crate::context::Context;
use crate::faulty::Fault;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "backlog.deep", [8, 15, 42], deep)
        .needs(&[Need::STRICT_PRIORITY, Need::PUSH_ORDER])
        .kills(&[Fault::SearchesBacklog, Fault::TiesReversed, Fault::PriorityIgnored])
        .deadline(Duration::from_mins(10)),
    case!(Storage, "backlog.counted_and_purged", [35, 36, 42], counted_and_purged)
        .needs(&[Need::COUNTS, Need::PURGE])
        .kills(&[Fault::LosesEleventh])
        .deadline(Duration::from_mins(10)),
];

/// Longest time that pushing the backlog may take; a backend that is slower is tried with what it has by then.
const FILLING: Duration = Duration::from_mins(3);

/// Pulls whose fastest is compared.
const LOOKS: usize = 20;

/// Pushes a deep backlog, and answers the first few ids of it and how many there are.
async fn fill(c: &Context, p: &PartitionId) -> CaseResult<(Vec<MessageId>, usize)> {
    let (wanted, begin) = (c.size(2_000, 1_000_000), Instant::now());
    let batch = c.capabilities().limits.push_batch.min(1000);
    let (mut first, mut count) = (Vec::new(), 0);
    while count < wanted && begin.elapsed() < FILLING {
        let sent = c.client().push(p, &c.messages(batch.min(wanted - count), |_, message| message)).await?;
        count += sent.len();
        if first.len() < 3 * LOOKS {
            first.extend(sent);
        }
    }
    Ok((first, count))
}

/// The fastest of some rounds of one pull and one settlement, and what they took out.
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

/// At the front of a deep queue order, priority and speed are those of a shallow one.
async fn deep(c: &Context) -> CaseResult {
    let (shallow, p) = (c.partition("shallow")?, c.partition("deep")?);
    c.client().push(&shallow, &c.messages(LOOKS, |_, message| message)).await?;
    let (expected, _) = fastest_round(c, &shallow).await?;
    let (first, count) = fill(c, &p).await?;
    let (fastest, taken) = fastest_round(c, &p).await?;
    c.equal(15, &taken, "the first of a deep queue", &first.get(..LOOKS), &Some(&taken[..]))?;
    // Ten times is far beyond noise and far below what a scan of the backlog takes.
    let most = expected * 10 + Duration::from_millis(20);
    let told = format!(
        "a pull and a settlement within {most:?} before {count} messages, as {expected:?} sufficed before none"
    );
    c.check(42, &[], fastest <= most, told, format!("{fastest:?} at the fastest"))?;
    let urgent = c.client().push(&p, &[c.message().with_priority(1)]).await?;
    let got = c.client().take(&p, 1).await?;
    c.in_order(15, "the urgent message, ahead of the backlog", &urgent, &got)?;
    c.client().remove(&got).await?;
    clear(c, &p).await.map(drop)
}

/// A deep queue is counted exactly, and purged in steps of the size asked for.
async fn counted_and_purged(c: &Context) -> CaseResult {
    let p = c.partition("deep")?;
    let (_, count) = fill(c, &p).await?;
    let counts = c.ok(35, "counts", c.client().inspect()?.counts(&p).await)?;
    c.equal(35, &[], "the number that is ready", &Some(count as u64), &counts.ready)?;
    let purged = clear(c, &p).await?;
    c.equal(36, &[], "the number purged", &count, &purged)
}

/// Purges, where that is declared, so that the account at the end need not take each message in hand.
async fn clear(c: &Context, p: &PartitionId) -> CaseResult<usize> {
    let mut purged = 0;
    while c.capabilities().inspect.purge {
        let step = c.ok(36, "a purge", c.client().inspect()?.purge(p, 1000).await)?;
        purged += step;
        c.check(36, &[], step <= 1000, "at most 1000 purged in one step".to_owned(), format!("{step}"))?;
        if step < 1000 {
            break;
        }
    }
    Ok(purged)
}
