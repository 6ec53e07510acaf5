//! The life cycle: init, check, close, and what comes after.

use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, Extension, PullRequest};
use anyqueue::{ErrorKind, ExtendOutcome, MessageId, Page, SettleOutcome};
use futures_util::future::join_all;

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Context, settlement};
use crate::fault::Fault;
use crate::least::contradictions;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "life.declares_enough", [Limits, Unsupported], declares_enough)
        .kills(&[Fault::DeclaresLess]),
    case!(Storage, "life.init_again", [Init], init_again).kills(&[Fault::InitEmpties]),
    case!(Storage, "life.check_is_healthy", [Check], check_is_healthy).kills(&[Fault::HealthRemembered]),
    case!(Storage, "life.close_wakes_waiters", [Close], close_wakes_waiters)
        .kills(&[Fault::CloseDoesNotWake]),
    case!(Storage, "life.use_after_close", [Close], use_after_close)
        .kills(&[Fault::CloseDoesNothing, Fault::HealthRemembered]),
    case!(Storage, "life.closed_inspection", [Close], closed_inspection).kills(&[Fault::CloseDoesNothing]),
    case!(Storage, "life.close_again", [Close], close_again).kills(&[Fault::SecondCloseFails]),
    case!(Storage, "life.close_leaves_others", [Close], close_leaves_others)
        .kills(&[Fault::CloseIsShared, Fault::CloseReleasesAll]),
    case!(Storage, "life.held_comes_back_after_close", [Close], held_comes_back_after_close)
        .kills(&[Fault::LeaseNeverExpires, Fault::ClosedKeepsLeases]),
    case!(Storage, "life.settled_stays_settled", [SettleOutcomes, Close], settled_stays_settled)
        .kills(&[Fault::RemoveDoesNothing]),
    case!(Storage, "life.clients_come_and_go", [Stored, Resources], clients_come_and_go)
        .kills(&[Fault::BufferLostAtClose]),
];

/// Initialising again, even by many clients at once, changes nothing.
async fn init_again(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &c.messages(3, |_, message| message)).await?;
    let held = c.client().pull(&p, 1).await?;
    let opened = join_all((0..4).map(|_| c.fresh())).await.into_iter().collect::<CaseResult<Vec<_>>>()?;
    let inits = opened.iter().cycle().take(8).map(|client| client.storage().init());
    for init in join_all(inits).await {
        c.ok(Clause::Init, "initialising again", init)?;
    }
    let rest = c.client().take(&p, 2).await?;
    c.client().remove(&held).await?;
    c.client().remove(&rest).await?;
    c.same(Clause::Init, "all messages, as they were", &sent, &[held, rest].concat())
}

/// A working backend is healthy; a closed handle does not claim to be.
async fn check_is_healthy(c: &Context) -> CaseResult {
    let client = c.fresh().await?;
    c.ok(Clause::Check, "the check", client.storage().check().await)?;
    client.close().await?;
    c.error(
        Clause::Close,
        "the check of a closed handle",
        ErrorKind::Closed,
        &client.storage().check().await,
    )?;
    c.ok(Clause::Check, "another handle's check", c.client().storage().check().await)?;
    Ok(())
}

/// Closing ends the wait of a pull: empty or `Closed`, but soon.
async fn close_wakes_waiters(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let client = c.fresh().await?;
    let waiting = async {
        let wait = c.timing().soon * 3;
        let answers = join_all((0..5).map(|_| client.storage().pull(&p, client.request(1, wait)))).await;
        (answers, Instant::now())
    };
    let closing = async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        let at = Instant::now();
        client.close().await?;
        CaseResult::Ok(at)
    };
    let ((answers, ended), closed) = futures_util::join!(waiting, closing);
    for answer in answers {
        let ok = match &answer {
            Ok(got) => got.is_empty(),
            Err(error) => error.kind() == ErrorKind::Closed,
        };
        c.check(Clause::Close, &[], ok, "nothing, or closed", format!("{answer:?}"))?;
    }
    let took = ended.saturating_duration_since(closed?);
    c.took(Clause::Close, &[], "the end of all waits", took, (Duration::ZERO, c.timing().soon))
}

/// The declaration makes sense, and is no less than the backend's authors have fixed. It is checked on a
/// backend that works: a declaration alone is worth nothing.
async fn declares_enough(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    c.client().push(&p, &c.messages(1, |_, message| message)).await?;
    let held = c.client().take(&p, 1).await?;
    c.client().remove(&held).await?;
    let declared = c.capabilities();
    c.equal(
        Clause::Limits,
        &[],
        "declarations that contradict each other:",
        &Vec::new(),
        &contradictions(declared),
    )?;
    let missing = |need: &&Need| !need.is_declared(declared);
    let missing: Vec<_> = c.least().iter().filter(missing).map(|need| need.what()).collect();
    c.equal(Clause::Unsupported, &[], "undeclared, of what this backend can have:", &Vec::new(), &missing)
}

/// Every call on a closed handle returns `Closed`, per item, and does nothing.
async fn use_after_close(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let client = c.fresh().await?;
    let sent = c.client().push(&p, &c.messages(2, |_, message| message)).await?;
    let [held] = client.take_exact(&p).await?;
    client.close().await?;
    let storage = client.storage();
    let closed = ErrorKind::Closed;
    c.error(Clause::Close, "init", closed, &storage.init().await)?;
    c.error(Clause::Close, "check", closed, &storage.check().await)?;
    c.error(Clause::Close, "pull", closed, &storage.pull(&p, client.request(1, Duration::ZERO)).await)?;
    let pushes = storage.push(&p, &c.messages(2, |_, message| message)).await;
    c.equal(Clause::Close, &[], "the number of answers to a push", &2, &pushes.len())?;
    for push in &pushes {
        c.error(Clause::Close, "push", closed, push)?;
    }
    for outcome in &storage.settle(&[settlement(&held, Action::Remove)]).await {
        c.error::<SettleOutcome>(Clause::Close, "settle", closed, outcome)?;
    }
    let extension = Extension { lease: held.lease.clone(), duration: c.timing().lease };
    for outcome in &storage.extend(&[extension]).await {
        c.error::<ExtendOutcome>(Clause::Close, "extend", closed, outcome)?;
    }
    let (settled, pulled) =
        storage.exchange(&[settlement(&held, Action::Remove)], &p, client.request(1, Duration::ZERO)).await;
    for outcome in &settled {
        c.error(Clause::Close, "settling in an exchange", closed, outcome)?;
    }
    c.error(Clause::Close, "pulling in an exchange", closed, &pulled)?;
    // None of it was done: the second message is there, and the held one was not removed.
    let rest = c.client().pull_now(&p, 10).await?;
    c.check(
        Clause::Close,
        &sent,
        rest.iter().any(|delivery| delivery.lease.id != held.lease.id),
        "the message that waits",
        "none",
    )?;
    c.client().remove(&rest).await?;
    free(c, &held).await
}

/// Brings back, through another client, what a closed client holds under a long lease.
async fn free(c: &Context, held: &anyqueue::adapter::RawDelivery) -> CaseResult {
    if c.capabilities().lease.kind == anyqueue::adapter::LeaseKind::Timed {
        c.client().try_settle(held, Action::Release).await?;
    }
    Ok(())
}

async fn closed_inspection(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let client = c.fresh().await?;
    client.close().await?;
    let (declared, closed, one) = (c.capabilities().inspect, ErrorKind::Closed, [MessageId::new()]);
    c.error(
        Clause::Close,
        "pull",
        closed,
        &client.storage().pull(&p, client.request(1, Duration::ZERO)).await,
    )?;
    if let Some(inspect) = client.storage().inspect() {
        if declared.list {
            c.error(Clause::Close, "the list", closed, &inspect.partitions(Page::of(1)).await)?;
        }
        if declared.ready {
            c.error(Clause::Close, "counts", closed, &inspect.counts(&p).await)?;
        }
        if declared.browse {
            c.error(Clause::Close, "browse", closed, &inspect.browse(&p, Page::of(1)).await)?;
        }
        if declared.purge {
            c.error(Clause::Close, "purge", closed, &inspect.purge(&p, 1).await)?;
        }
        if declared.delete {
            for answer in &inspect.delete(&p, &one).await {
                c.error(Clause::Close, "delete", closed, answer)?;
            }
        }
        if declared.cancel {
            for answer in &inspect.request_cancel(&p, &one).await {
                c.error(Clause::Close, "cancel", closed, answer)?;
            }
        }
    }
    if let Some(pause) = client.storage().pause() {
        c.error(Clause::Close, "pausing", closed, &pause.set_paused(&p, true).await)?;
        c.error(Clause::Close, "asking for the pause", closed, &pause.is_paused(&p).await)?;
    }
    Ok(())
}

/// Closing ten times at once is the same as closing once.
async fn close_again(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let client = c.fresh().await?;
    let sent = client.push(&p, &[c.message()]).await?;
    for close in join_all((0..10).map(|_| client.close())).await {
        close?;
    }
    client.close().await?;
    let got = c.client().take(&p, 1).await?;
    c.in_order(Clause::Close, "what was pushed before", &sent, &got)?;
    c.client().remove(&got).await
}

/// Closing one client does not affect others.
async fn close_leaves_others(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let client = c.fresh().await?;
    let held_id = c.client().push(&p, &[c.message()]).await?;
    let held = c.client().take(&p, 1).await?;
    let waiting = c.client().pull(&p, 1);
    let closing = async {
        client.close().await?;
        c.client().push(&p, &[c.message()]).await
    };
    let (got, sent) = futures_util::join!(waiting, closing);
    let got = got?;
    c.in_order(Clause::Close, "the wait of another client, unharmed", &sent?, &got)?;
    c.in_order(Clause::Close, "what another client holds", &held_id, &held)?;
    c.client().remove(&got).await?;
    c.client().remove(&held).await
}

/// Messages that a client held when it closed go to others, at the end of their leases at the latest.
async fn held_comes_back_after_close(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let client = c.fresh().await?;
    let sent = c.client().push(&p, &c.messages(3, |_, message| message)).await?;
    client.pull_with(&p, PullRequest::new(3, c.timing().soon, c.timing().lease)).await?;
    client.close().await?;
    let mut back = Vec::new();
    while back.len() < 3 {
        let wait = c.timing().latest(c.timing().lease);
        let got = c.client().pull_with(&p, c.client().request(3, wait)).await?;
        c.check(Clause::Close, &sent, !got.is_empty(), "everything back", format!("{} came", back.len()))?;
        back.extend(got);
    }
    c.same(Clause::Close, "everything back", &sent, &back)?;
    c.client().remove(&back).await
}

/// A settlement that was confirmed before the close remains valid after it.
async fn settled_stays_settled(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let client = c.fresh().await?;
    c.client().push(&p, &c.messages(5, |_, message| message)).await?;
    let (start, lease) = (Instant::now(), c.timing().act_lease);
    let got = client.pull_with(&p, PullRequest::new(5, c.timing().soon, lease)).await?;
    let settlements: Vec<_> = got.iter().map(|delivery| settlement(delivery, Action::Remove)).collect();
    let outcomes = client.storage().settle(&settlements).await;
    client.close().await?;
    let settled = outcomes.iter().filter(|outcome| matches!(outcome, Ok(SettleOutcome::Settled))).count();
    c.still_within(start, lease)?;
    c.equal(Clause::SettleOutcomes, &[], "the number of Settled", &5, &settled)?;
    c.client()
        .nothing(
            &p,
            c.timing().never_after(lease),
            Clause::Close,
            "nothing of what was settled before the close",
        )
        .await
}

/// Clients come, push, take and go, one after another: the last one sees the work of all.
async fn clients_come_and_go(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let mut sent = Vec::new();
    for _ in 0..c.size(20, 200) {
        let client = c.fresh().await?;
        sent.extend(client.push(&p, &[c.message()]).await?);
        let none = client.pull_now(&c.partition("empty")?, 1).await?;
        c.in_order(Clause::PullBounds, "nothing", &[], &none)?;
        client.close().await?;
    }
    let got = c.client().take(&p, sent.len()).await?;
    c.same(Clause::Stored, "what all of them pushed", &sent, &got)?;
    c.client().remove(&got).await
}
