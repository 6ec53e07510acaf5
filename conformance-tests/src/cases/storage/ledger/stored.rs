//! The end of a task is stored with its settlement: all of it, in the same step, wherever settlements go.

use std::time::{Duration, Instant, SystemTime};

use anyqueue::adapter::{Action, TaskEnd};
use anyqueue::{EndState, MAX_RESULT_BYTES, SettleOutcome};
use futures_util::future::join_all;

use super::super::settle::token::actions;
use super::super::successors::followed;
use super::{LONG, Ledger, NEEDS, bare, end_all, end_numbered, end_one, ending, hold, ids_of, numbered};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::{CLOCK_GRAIN, Context, settlement};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "ledger.every_field", [EndStored], every_field).needs(NEEDS).kills(&[
        Fault::EndErrorsForgotten,
        Fault::EndRanInMillis,
        Fault::EndKindForgotten,
        Fault::EndGenerationForgotten,
        Fault::EndAttemptForgotten,
        Fault::EndWaitedInMillis,
        Fault::EndTaskIdCut,
        Fault::EndResultAsText,
        Fault::EndedListsResults,
    ]),
    case!(Storage, "ledger.results", [EndStored, EndedTold], results).needs(NEEDS).kills(&[
        Fault::EndResultCut,
        Fault::EndResultEmpty,
        Fault::EndResultForgotten,
        Fault::EndedListsResults,
    ]),
    case!(Storage, "ledger.batch", [EndStored], batch).needs(NEEDS).kills(&[
        Fault::EndsForgotten,
        Fault::EndsOfOnePartition,
        Fault::EleventhEndLost,
        Fault::EndsOfFirst,
    ]),
    case!(Storage, "ledger.no_end_given", [EndStored], no_end_given).needs(NEEDS).kills(&[Fault::EndUnasked]),
    case!(Storage, "ledger.exchange", [EndStored], exchange)
        .needs(NEEDS)
        .kills(&[Fault::ExchangeForgetsEnds, Fault::EndedMessageStays]),
    case!(Storage, "ledger.with_successors", [EndStored, Successors], with_successors)
        .needs(&[Need::AtomicLedger, Need::Successors])
        .kills(&[Fault::EndWithSuccessorsLost, Fault::EndOfLostLease]),
    case!(Storage, "ledger.groups_go_on", [EndStored, Groups], groups_go_on)
        .needs(&[Need::Ledger, Need::Groups])
        .kills(&[Fault::EndedMessageStays, Fault::EndLate]),
    case!(Storage, "ledger.server_time", [EndStored, ServerTime], server_time)
        .needs(NEEDS)
        .kills(&[Fault::EndedInMicros, Fault::EndLate]),
    case!(Storage, "ledger.ended_again", [EndStored], ended_again)
        .needs(&[Need::AtomicLedger])
        .kills(&[Fault::FormerEndFound, Fault::SettledEndsMerge]),
    case!(Storage, "ledger.from_many_tasks", [EndStored], from_many_tasks)
        .needs(NEEDS)
        .kills(&[Fault::EndsOfFirst, Fault::EndsForgotten]),
];

/// Returns ends with everything that one can have, and with nothing; each of their texts is unique.
fn kinds() -> Vec<TaskEnd> {
    let mut full = TaskEnd::new(EndState::TimedOut).with_attempt(3).with_generation(2).with_delivery_count(5);
    full.waited = Duration::from_micros(1_234_567_891);
    full.ran = Duration::from_micros(1);
    full.worker = Some("host-1:4711".into());
    full.kind = Some("send mail".into());
    full.task_id = Some("order 7 \u{1F980} \u{0} \u{202E}'; DROP TABLE \\ %".into());
    full.session_id = Some("Grüße, 東京".into());
    full.trace = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into());
    full.reason = Some(" took too long\r\n\tat line 3\t ".into());
    full.errors = Some("[{\"error\":\"none\"}]".into());
    full.result = Some(b"\0\xff\xfe \r\n result".as_slice().into());
    let mut empty = full.clone();
    let texts = [&mut empty.worker, &mut empty.kind, &mut empty.task_id, &mut empty.session_id];
    texts.into_iter().chain([&mut empty.trace, &mut empty.reason, &mut empty.errors]).for_each(|text| {
        *text = Some("".into());
    });
    empty.result = Some(Vec::new().into());
    let mut most =
        full.clone().with_attempt(u32::MAX).with_generation(u32::MAX).with_delivery_count(u32::MAX);
    most.waited = Duration::from_hours(24 * 365 * 300);
    most.errors = Some("e".repeat(8 << 10).into());
    let bare = EndState::ALL.into_iter().map(TaskEnd::new);
    bare.chain([full, empty, most]).collect()
}

/// Everything comes back as it was given, and nothing else.
async fn every_field(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    for keep in [None, LONG] {
        let ends: Vec<_> = kinds().into_iter().map(|end| end.with_keep(keep)).collect();
        let expected = end_all(c, &p, &ends).await?;
        let ledger = Ledger::first(c, &p)?;
        ledger.has(Clause::EndStored, &expected).await?;
        for listed in ledger.list(&super::EndedQuery::default()).await? {
            let Some((_, end)) = expected.iter().find(|(id, _)| *id == listed.id) else { continue };
            let mut end = end.clone().with_keep(None);
            end.result = None;
            c.equal(Clause::EndedTold, &[listed.id], "the end in a list", &end, &bare(&listed))?;
            let kept = listed.expires_at.map(|expires| expires.duration_since(listed.ended_at).ok());
            c.equal(Clause::EndedTold, &[listed.id], "how long it is kept:", &keep.map(Some), &kept)?;
        }
    }
    Ok(())
}

/// Results of every size come back byte for byte, and in no list.
async fn results(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let bytes = |n: usize| (0..=250_u8).rev().cycle().take(n).collect::<Vec<_>>();
    let sizes = [0, 1, 1000, 64 << 10, (64 << 10) + 1, MAX_RESULT_BYTES - 1, MAX_RESULT_BYTES];
    for size in sizes {
        let end = TaskEnd::new(EndState::Succeeded).with_result(bytes(size));
        let id = end_one(c, &p, &end).await?;
        let found = Ledger::first(c, &p)?.found(Clause::EndStored, id).await?;
        let same = found.end.result == end.result;
        let seen = format!("{:?} bytes, or others", found.end.result.as_ref().map(anyqueue::Bytes::len));
        c.check(Clause::EndStored, &[id], same, format!("the {size} bytes of the result"), seen)?;
    }
    let listed = Ledger::first(c, &p)?.list(&super::EndedQuery::default()).await?;
    c.equal(Clause::EndedTold, &[], "how many are listed:", &sizes.len(), &listed.len())
}

/// Each settlement of a batch has its own end, even if some have none, and over partitions.
async fn batch(c: &Context) -> CaseResult {
    let (p, other) = (c.partition("work")?, c.partition("other")?);
    let n = c.capabilities().limits.settle_batch.min(c.size(30, 200));
    c.client().push(&p, &c.messages(n, |_, message| message)).await?;
    let mut held = c.client().take(&p, n).await?;
    held.push(hold(c, &other, c.message()).await?);
    let (mut expected, mut bare) = (Vec::new(), Vec::new());
    let mut batch = Vec::new();
    for (number, held) in held.iter().enumerate() {
        if number % 3 == 1 {
            bare.push(held.lease.id);
            batch.push(settlement(held, Action::Remove));
        } else {
            let end = numbered(number);
            batch.push(ending(held, &end));
            expected.push((held.lease.id, end));
        }
    }
    c.client().settle(&batch).await?;
    let elsewhere: Vec<_> = held.iter().skip(n).map(|held| held.lease.id).collect();
    let (there, here): (Vec<_>, Vec<_>) = expected.into_iter().partition(|(id, _)| elsewhere.contains(id));
    Ledger::first(c, &p)?.has(Clause::EndStored, &here).await?;
    Ledger::first(c, &other)?.has(Clause::EndStored, &there).await?;
    Ledger::first(c, &p)?.lacks(Clause::EndStored, &bare, "its settlement brought none").await
}

/// A settlement without an end stores none, whatever happens to the message.
async fn no_end_given(c: &Context) -> CaseResult {
    let (p, elsewhere) = (c.partition("work")?, c.partition("elsewhere")?);
    for action in actions(c)? {
        let held = hold(c, &p, c.message()).await?;
        c.client().settle(&[settlement(&held, action.clone())]).await?;
        for place in [&p, &elsewhere] {
            Ledger::first(c, place)?.is_empty(Clause::EndStored, "none was given").await?;
        }
        let place = match action {
            Action::Remove => continue,
            Action::Move { .. } => &elsewhere,
            _ => &p,
        };
        let back = c.client().take(place, 1).await?;
        c.client().remove(&back).await?;
    }
    Ledger::first(c, &p)?.is_empty(Clause::EndStored, "none was given").await
}

/// The settlements of an exchange have their ends, even if it pulls nothing, or waits for something.
async fn exchange(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let mut expected = Vec::new();
    c.client().push(&p, &c.messages(4, |_, message| message)).await?;
    let mut held = c.client().take(&p, 1).await?;
    for number in 0.. {
        let Some(one) = held.pop() else { break };
        let end = numbered(number);
        let request = c.client().request(1, if number < 3 { c.timing().soon } else { Duration::ZERO });
        let (settled, pulled) = c.client().storage().exchange(&[ending(&one, &end)], &p, request).await;
        let right = matches!(settled.as_slice(), [Ok(SettleOutcome::Settled)]);
        c.check(Clause::SettleOutcomes, &[one.lease.id], right, "Settled", format!("{settled:?}"))?;
        expected.push((one.lease.id, end));
        held = c.ok(Clause::PullBounds, "pulling in an exchange", pulled)?;
        Ledger::first(c, &p)?.has(Clause::EndStored, &expected).await?;
    }
    c.equal(Clause::PullBounds, &[], "how many came:", &4, &expected.len())
}

/// An end and successors are stored together; under a lost lease neither is.
async fn with_successors(c: &Context) -> CaseResult {
    let (p, next) = (c.partition("work")?, c.partition("next")?);
    let held = hold(c, &p, c.message()).await?;
    let (first, second) = (numbered(1), numbered(2));
    let successors = c.messages(3, |_, message| message);
    let sent: Vec<_> = successors.iter().map(anyqueue::MessageData::id).collect();
    let followed = |message, end: &TaskEnd| {
        followed(&held, Action::Remove, &next, message).with_end(Some(std::sync::Arc::new(end.clone())))
    };
    c.client().settle(&[followed(successors, &first)]).await?;
    let again = c.client().storage().settle(&[followed(vec![c.message()], &second)]).await;
    let lost = matches!(again.as_slice(), [Ok(SettleOutcome::Lost)]);
    c.check(Clause::SettleTwice, &[held.lease.id], lost, "Lost", format!("{again:?}"))?;
    let ledger = Ledger::first(c, &p)?;
    ledger.has(Clause::EndStored, &[(held.lease.id, first)]).await?;
    let got = c.client().take(&next, 3).await?;
    c.same(Clause::Successors, "the successors of the settlement", &sent, &got)?;
    Ledger::first(c, &next)?.is_empty(Clause::EndStored, "the successors live").await?;
    c.client().remove(&got).await?;
    c.client().nothing(&next, Duration::ZERO, Clause::Successors, "no other successor").await
}

/// The end of a head frees its group like any removal.
async fn groups_go_on(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &c.messages(5, |_, message| message.with_group("g"))).await?;
    let mut expected = Vec::new();
    for (number, id) in sent.iter().enumerate() {
        let got = c.client().pull(&p, 10).await?;
        c.in_order(Clause::Groups, "the members one by one", &[*id], &got)?;
        let end = numbered(number);
        let batch: Vec<_> = got.iter().map(|held| ending(held, &end)).collect();
        c.client().settle(&batch).await?;
        expected.push((*id, end));
    }
    Ledger::first(c, &p)?.has(Clause::EndStored, &expected).await
}

/// The time is that of the settlement, by the server's clock, in whole milliseconds.
async fn server_time(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let mut former: Option<(Instant, Instant, SystemTime)> = None;
    for number in 0..6 {
        let held = hold(c, &p, c.message()).await?;
        let id = held.lease.id;
        tokio::time::sleep(Duration::from_millis(30)).await;
        let begun = Instant::now();
        c.client().settle(&[ending(&held, &numbered(number).with_keep(LONG))]).await?;
        let done = Instant::now();
        let ended_at = Ledger::first(c, &p)?.found(Clause::EndStored, id).await?.ended_at;
        let since = ended_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let whole = since.subsec_nanos() % 1_000_000 == 0;
        c.check(Clause::EndStored, &[id], whole, "whole milliseconds", format!("{since:?}"))?;
        if let Some((first_begun, first_done, first)) = former {
            let seen = ended_at.duration_since(first).unwrap_or_default();
            let (least, most) = (begun - first_done, done - first_begun);
            let bounds = (least.saturating_sub(CLOCK_GRAIN), most + CLOCK_GRAIN);
            c.took(Clause::ServerTime, &[id], "the end, told from the first,", seen, bounds)?;
        }
        former.get_or_insert((begun, done, ended_at));
    }
    Ok(())
}

/// If an id is pushed again after its end, and ends again, the last end is found, whatever its rank.
async fn ended_again(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let message = c.message();
    let id = message.id();
    let ends = [3, 2, 5, 0].map(|attempt| numbered(attempt).with_reason(format!("end {attempt}")));
    for end in &ends {
        let held = hold(c, &p, message.clone()).await?;
        c.equal(Clause::EndStored, &[id], "the id", &id, &held.lease.id)?;
        c.client().settle(&[ending(&held, end)]).await?;
        let found = Ledger::first(c, &p)?.found(Clause::EndStored, id).await?;
        c.equal(Clause::EndStored, &[id], "the last end", end, &bare(&found))?;
    }
    // The others may be returned until they are deleted; then none is.
    let deleted = Ledger::first(c, &p)?.delete(&[id]).await?;
    c.equal(Clause::EndsRemoved, &[id], "deleted:", &vec![true], &deleted)?;
    Ledger::first(c, &p)?.lacks(Clause::EndsRemoved, &[id], "all of them were deleted").await
}

/// Many tasks settle at once, one by one and in batches: none of the ends is lost, and none is mixed up.
async fn from_many_tasks(c: &Context) -> CaseResult {
    let (p, count) = (c.partition("work")?, 60);
    c.client().push(&p, &c.messages(count, |_, message| message)).await?;
    let held = c.client().take(&p, count).await?;
    let expected: Vec<_> =
        held.iter().enumerate().map(|(number, held)| (held.lease.id, numbered(number))).collect();
    let pairs: Vec<_> = held.iter().zip(&expected).collect();
    let tasks = pairs.chunks(5).enumerate().map(|(number, chunk)| {
        let batch: Vec<_> = chunk.iter().map(|(held, (_, end))| ending(held, end)).collect();
        async move {
            let size = if number.is_multiple_of(2) { 1 } else { batch.len() };
            for part in batch.chunks(size) {
                c.client().settle(part).await?;
            }
            Ok(())
        }
    });
    join_all(tasks).await.into_iter().collect::<CaseResult>()?;
    Ledger::first(c, &p)?.has(Clause::EndStored, &expected).await?;
    let more = end_numbered(c, &p, 1).await?;
    Ledger::first(c, &p)?.lists_once(Clause::EndStored, &[ids_of(&expected), ids_of(&more)].concat()).await
}
