//! What must be true of every history, whatever its case was about.

use std::collections::HashMap;

use anyqueue::{LeaseKind, MessageId, PushOutcome, Strictness};

use super::ledger::{Held, Ledger};
use crate::case::CaseResult;
use crate::context::{CLOCK_GRAIN, Context};
use crate::history::Op;

pub(super) fn judge(c: &Context, ledger: &Ledger) -> CaseResult {
    answers(c)?;
    for held in &ledger.held {
        delivery(c, ledger, held)?;
        finality(c, ledger, held)?;
    }
    exclusive(c, ledger)?;
    nothing_lost(c, ledger)
}

/// Batches answer per item, and a pull answers at most `max`.
fn answers(c: &Context) -> CaseResult {
    for event in c.history().events().iter().filter(|event| event.returned.is_some()) {
        match &event.op {
            Op::Push { ids, outcomes, .. } => {
                let expected = format!("{} answers to a push of as many messages", ids.len());
                c.check(2, ids, ids.len() == outcomes.len(), expected, format!("{}", outcomes.len()))?;
                for (id, outcome) in ids.iter().zip(outcomes) {
                    if let Ok(PushOutcome::Stored(stored)) = outcome {
                        let seen = format!("the id of {}", c.label(*stored));
                        c.check(
                            2,
                            &[*id],
                            stored == id,
                            format!("the id of {} at its place", c.label(*id)),
                            seen,
                        )?;
                    }
                }
            }
            Op::Pull { max, outcome: Ok(got), .. } => {
                let ids: Vec<MessageId> = got.iter().map(|delivery| delivery.lease.id).collect();
                let seen = format!("{} deliveries", got.len());
                c.check(8, &ids, got.len() <= *max, format!("at most {max} deliveries"), seen)?;
            }
            Op::Settle { settlements, outcomes } => {
                let expected = format!("{} outcomes", settlements.len());
                let ids: Vec<MessageId> = settlements.iter().map(|s| s.lease.id).collect();
                let ok = settlements.len() == outcomes.len();
                c.check(20, &ids, ok, expected, format!("{}", outcomes.len()))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// A delivery is of a message that was pushed there, with the bytes that were pushed, under the lease that was asked for.
fn delivery(c: &Context, ledger: &Ledger, held: &Held) -> CaseResult {
    let got = &held.delivery;
    let id = got.lease.id;
    let about = [id];
    c.check(
        5,
        &about,
        got.message.id() == id,
        "one id in lease and message",
        format!("{}", got.message.id()),
    )?;
    let entry = ledger.entries.get(&id).filter(|entry| !entry.pushed.is_empty());
    let (Some(entry), Some(known)) = (entry, c.history().known(id)) else {
        let seen = format!("{:?}, which nobody pushed", got.message);
        return Err(c.failed(5, &about, "only messages that were pushed", seen));
    };
    let seen = format!("it came out of {}", held.from);
    c.check(16, &about, entry.places.contains(&held.from), format!("it in one of {:?}", entry.places), seen)?;
    let seen = format!("a lease on {}", got.lease.partition);
    let right = got.lease.partition == held.from;
    c.check(16, &about, right, format!("a lease on {}, which was pulled", held.from), seen)?;
    let never_stored = entry.stored.is_none() && !entry.open;
    if let Some(kind) = entry.refused.filter(|_| never_stored && !entry.duplicate) {
        return Err(c.failed(
            43,
            &about,
            format!("nothing stored, as the push answered {kind}"),
            "it was delivered",
        ));
    }
    c.check(
        32,
        &about,
        !never_stored,
        "nothing stored by a push that answered Duplicate",
        "it was delivered",
    )?;
    content(c, held, &known.message, &known.headers, entry.moved)?;
    lease(c, held)
}

fn content(
    c: &Context,
    held: &Held,
    pushed: &anyqueue::MessageData,
    headers: &[anyqueue::Headers],
    moved: bool,
) -> CaseResult {
    let (got, about) = (&held.delivery.message, [held.delivery.lease.id]);
    let same = got.payload() == pushed.payload();
    let differ = || difference(pushed.payload(), got.payload());
    c.check(5, &about, same, "the payload as it was pushed", if same { String::new() } else { differ() })?;
    let known = headers.contains(got.headers());
    c.check(5, &about, known, format!("the headers {headers:?}"), format!("{:?}", got.headers()))?;
    c.equal(5, &about, "the task id", &pushed.task_id(), &got.task_id())?;
    c.equal(5, &about, "the session id", &pushed.session_id(), &got.session_id())?;
    let mut expected = pushed.options().clone();
    expected.delay = got.options().delay; // consumed by the delay itself; adapters need not keep it
    if moved {
        expected.dedup_key.clone_from(&got.options().dedup_key); // freed by the move
    }
    c.equal(5, &about, "the options", &expected, got.options())
}

/// Where two byte strings part ways.
fn difference(expected: &[u8], seen: &[u8]) -> String {
    let at = expected.iter().zip(seen).take_while(|(a, b)| a == b).count();
    format!("{} bytes instead of {}, equal up to byte {at}", seen.len(), expected.len())
}

/// `lease_until` is counted from before the claim was sent; it must be neither too long nor uselessly short.
fn lease(c: &Context, held: &Held) -> CaseResult {
    let about = [held.delivery.lease.id];
    if let Some(count) = held.delivery.delivery_count {
        c.check(28, &about, count >= 1, "a delivery count of at least 1", format!("{count}"))?;
    }
    if c.capabilities().lease.kind != LeaseKind::Timed {
        return Ok(());
    }
    let Some(until) = held.delivery.lease_until else {
        return Err(c.failed(25, &about, "the end of a timed lease in `lease_until`", "None"));
    };
    let (from, to) = (held.invoked + held.lease, held.returned + held.lease);
    let ok = until + CLOCK_GRAIN >= from && until <= to + CLOCK_GRAIN;
    let seen = match until.checked_duration_since(held.invoked) {
        Some(after) => format!("`lease_until` {after:?} after the call"),
        None => "`lease_until` before the call".to_owned(),
    };
    let took = held.returned.saturating_duration_since(held.invoked);
    c.check(25, &about, ok, format!("a lease of {:?}, claimed within {took:?}", held.lease), seen)
}

/// After a confirmed removal nothing of the message is delivered, unless it was pushed anew.
fn finality(c: &Context, ledger: &Ledger, held: &Held) -> CaseResult {
    let id = held.delivery.lease.id;
    let Some(entry) = ledger.entries.get(&id) else { return Ok(()) };
    let renewed = |removed| entry.pushed.iter().any(|pushed| *pushed >= removed && *pushed <= held.returned);
    let broken = entry.removed.iter().any(|removed| *removed < held.invoked && !renewed(*removed));
    let sent = c.capabilities().settle_confirm == anyqueue::SettleConfirm::Sent;
    c.check(22, &[id], !broken || sent, "nothing delivered after its confirmed removal", "it came back")
}

/// The times at which owners certainly held a message never overlap.
fn exclusive(c: &Context, ledger: &Ledger) -> CaseResult {
    if c.capabilities().exclusive != Strictness::Strict {
        return Ok(());
    }
    let mut by_id: HashMap<MessageId, Vec<&Held>> = HashMap::new();
    for held in &ledger.held {
        by_id.entry(held.delivery.lease.id).or_default().push(held);
    }
    for (id, mut holds) in by_id {
        holds.sort_by_key(|held| held.returned);
        let mut holds = holds.into_iter();
        let Some(mut owner) = holds.next() else { continue };
        for next in holds {
            let both_until = owner.sure_until.min(next.sure_until);
            let overlap = both_until.saturating_duration_since(next.returned);
            let seen = format!("{} and {} both had it, for at least {overlap:?}", owner.client, next.client);
            c.check(14, &[id], overlap <= CLOCK_GRAIN, "one owner at a time", seen)?;
            if next.sure_until > owner.sure_until {
                owner = next;
            }
        }
    }
    Ok(())
}

fn nothing_lost(c: &Context, ledger: &Ledger) -> CaseResult {
    let owed = ledger.owed();
    let shown: Vec<MessageId> = owed.iter().take(5).copied().collect();
    if ledger.purged == 0 {
        let labels: Vec<_> = shown.iter().map(|id| c.label(*id)).collect();
        let seen = format!("{} lost: {}", owed.len(), labels.join(" "));
        let expected = "every acknowledged message to be removed by somebody or drained at the end";
        return c.check(1, &shown, owed.is_empty(), expected, seen);
    }
    let seen = format!("{} gone", owed.len());
    let expected = format!("{} gone, as many as the purges answered", ledger.purged);
    c.check(36, &shown, owed.len() == ledger.purged, expected, seen)
}
