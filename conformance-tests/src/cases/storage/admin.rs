//! Inspection: its answers are true, and looking disturbs nobody.

use std::time::{Duration, Instant};

use anyqueue::{
    CancelOutcome, Counts, DeleteOutcome, ErrorKind, ExtendOutcome, Headers, MessageId, MessageState, Page,
    PartitionId,
};

use super::helpers::{dead_letter, postpone, push_one, removes};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Client, Context, ids};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "admin.counts", [Inspection], counts).needs(&[Need::Counts, Need::PushDelay]).kills(&[
        Fault::CountsLocal,
        Fault::LeasedCountedReady,
        Fault::ReleaseCounts,
    ]),
    case!(Storage, "admin.list", [Inspection], list).needs(&[Need::List]).kills(&[Fault::ListUnordered]),
    case!(Storage, "admin.browse_pages", [Inspection], browse_pages)
        .needs(&[Need::Browse])
        .kills(&[Fault::BrowseRepeats]),
    case!(Storage, "admin.browse_many", [Inspection], browse_many)
        .needs(&[Need::Browse])
        .kills(&[Fault::BrowseEndsAtHundred]),
    case!(Storage, "admin.browse_states", [Inspection], browse_states)
        .needs(&[Need::Browse, Need::PushDelay])
        .kills(&[Fault::BrowseAllReady]),
    case!(Storage, "admin.browse_leases_nothing", [Inspection], browse_leases_nothing)
        .needs(&[Need::Browse])
        .kills(&[Fault::BrowseLeases]),
    case!(Storage, "admin.delete", [Deletion], delete)
        .needs(&[Need::Delete])
        .kills(&[Fault::DeleteTakesLeased, Fault::TwinDeleted]),
    case!(Storage, "admin.delete_here_only", [PartitionsApart, Deletion], delete_here_only)
        .needs(&[Need::Delete])
        .kills(&[Fault::DeleteAnywhere]),
    case!(Storage, "admin.purge", [Deletion], purge).needs(&[Need::Purge]).kills(&[Fault::PurgeTakesLeased]),
    case!(Storage, "admin.purge_limit", [Deletion], purge_limit)
        .needs(&[Need::Purge])
        .kills(&[Fault::PurgeIgnoresLimit]),
    case!(Storage, "admin.purge_during_pulls", [Exclusive, Deletion], purge_during_pulls)
        .needs(&[Need::Purge])
        .kills(&[Fault::PurgeTakesLeased]),
    case!(Storage, "admin.cancel", [Extend, Deletion], cancel)
        .needs(&[Need::Cancel])
        .kills(&[Fault::CancelNotTold, Fault::CancelLostByExtension]),
    case!(Storage, "admin.undeclared_is_unsupported", [Unsupported], undeclared_is_unsupported)
        .needs(&[Need::Undeclared])
        .kills(&[Fault::UndeclaredAnswered]),
    case!(Storage, "admin.new_headers_browsed", [Inspection], new_headers_browsed)
        .needs(&[Need::PostponeHeaders, Need::Browse])
        .kills(&[Fault::BrowseShowsOldHeaders]),
    case!(Storage, "admin.counts_of_a_group", [Inspection], counts_of_a_group)
        .needs(&[Need::Groups, Need::Counts])
        .kills(&[Fault::CountsForgetBehind]),
    case!(Storage, "admin.counts_of_held_dead", [Inspection], counts_of_held_dead)
        .needs(&[Need::Counts])
        .kills(&[Fault::DeadCountForgetsLeased]),
    case!(Storage, "admin.cancel_delayed", [Deletion], cancel_delayed)
        .needs(&[Need::Cancel, Need::PushDelay])
        .kills(&[Fault::CancelLeavesDelayed]),
    case!(Storage, "admin.purge_leaves_dead", [PartitionsApart, Deletion], purge_leaves_dead)
        .needs(&[Need::Purge])
        .kills(&[Fault::PurgeTakesDead]),
];

/// No case browses more messages than this.
const MOST_BROWSED: usize = 250;

/// Waits for the declared staleness, then judges the counts, as a fresh client sees them.
async fn counted(
    c: &Context,
    p: &PartitionId,
    ready: u64,
    delayed: u64,
    leased: u64,
    dead: u64,
) -> CaseResult {
    let (client, expected) = (c.fresh().await?, Counts::known(ready, delayed, leased, dead));
    let deadline = Instant::now() + c.capabilities().inspect.staleness;
    loop {
        let counts = c.ok(Clause::Inspection, "counts", client.inspect()?.counts(p).await)?;
        if counts == expected || Instant::now() >= deadline {
            return c.equal(Clause::Inspection, &[], "the counts", &expected, &counts);
        }
        tokio::time::sleep(c.timing().slack).await;
    }
}

/// The counts follow a handful of messages through all states.
async fn counts(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    counted(c, &p, 0, 0, 0, 0).await?;
    c.client().push(&p, &c.messages(5, |_, message| message)).await?;
    counted(c, &p, 5, 0, 0, 0).await?;
    let delay = c.timing().delay + c.timing().soon;
    c.client().push(&p, &c.messages(2, |_, message| message.with_delay(delay))).await?;
    counted(c, &p, 5, 2, 0, 0).await?;
    let [first, second, third] = c.client().take_exact(&p).await?;
    counted(c, &p, 2, 2, 3, 0).await?;
    c.client().remove(&[first]).await?;
    counted(c, &p, 2, 2, 2, 0).await?;
    c.client().settle_all(&[second], &anyqueue::adapter::Action::Release).await?;
    counted(c, &p, 3, 2, 1, 0).await?;
    let to_dead = anyqueue::adapter::Action::Move { to: p.dead_letters(), headers: None };
    c.client().settle_all(&[third], &to_dead).await?;
    counted(c, &p, 3, 2, 0, 1).await
}

/// The list names every partition once, in byte order, page by page.
async fn list(c: &Context) -> CaseResult {
    let mut names = ["b", "a", "B", "a.b", "a-b", "a_b", "aa", "z9", "Z"].map(|name| c.partition(name));
    names.sort_by_key(|name| name.as_ref().ok().cloned());
    let expected = names.into_iter().collect::<CaseResult<Vec<_>>>()?;
    for partition in expected.iter().rev() {
        c.client().push(partition, &[c.message()]).await?;
    }
    let client = c.fresh().await?;
    for page in [2, 4, 100] {
        let mut seen: Vec<PartitionId> = Vec::new();
        loop {
            let next = client.inspect()?.partitions(Page::of(page).after(seen.last().cloned())).await;
            let next = c.ok(Clause::Inspection, "the list", next)?;
            c.check(
                Clause::Inspection,
                &[],
                next.len() <= page,
                format!("at most {page}"),
                format!("{}", next.len()),
            )?;
            if next.is_empty() || seen.len() > expected.len() {
                break;
            }
            seen.extend(next);
        }
        c.equal(Clause::Inspection, &[], "the partitions, in byte order,", &expected, &seen)?;
    }
    Ok(())
}

/// All messages of a partition as browsing shows them, by pages of `page`.
async fn browse_all(
    c: &Context,
    client: &Client,
    p: &PartitionId,
    page: usize,
) -> CaseResult<Vec<MessageId>> {
    let mut seen: Vec<MessageId> = Vec::new();
    // A backend that repeats pages would never end.
    while seen.len() < MOST_BROWSED {
        let next = c.ok(
            Clause::Inspection,
            "browsing",
            client.inspect()?.browse(p, Page::of(page).after(seen.last().copied())).await,
        )?;
        c.check(
            Clause::Inspection,
            &[],
            next.len() <= page,
            format!("at most {page}"),
            format!("{}", next.len()),
        )?;
        if next.is_empty() {
            break;
        }
        seen.extend(next.iter().map(|browsed| browsed.message.id()));
    }
    Ok(seen)
}

/// Pages show each message once, in the order of the ids, with its bytes.
async fn browse_pages(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let messages = c.messages(10, |index, message| message.with_header("index", index.to_string()));
    let mut sent = c.client().push(&p, &messages).await?;
    sent.sort_unstable();
    let client = c.fresh().await?;
    for page in [1, 3, 10, 100] {
        let seen = browse_all(c, &client, &p, page).await?;
        c.equal(Clause::Inspection, &[], &format!("the messages by pages of {page}:"), &sent, &seen)?;
    }
    let all = c.ok(Clause::Inspection, "browsing", client.inspect()?.browse(&p, Page::of(100)).await)?;
    for browsed in &all {
        let pushed = messages.iter().find(|message| message.id() == browsed.message.id());
        c.equal(
            Clause::ContentIntact,
            &[browsed.message.id()],
            "the message",
            &pushed,
            &Some(&browsed.message),
        )?;
    }
    Ok(())
}

/// Pages continue to the end, whatever their size.
async fn browse_many(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let mut sent = c.client().push(&p, &c.messages(MOST_BROWSED, |_, message| message)).await?;
    sent.sort_unstable();
    for page in [60, 100, MOST_BROWSED] {
        let seen = browse_all(c, c.client(), &p, page).await?;
        c.same_ids(Clause::Inspection, &format!("by pages of {page}"), &sent, &seen)?;
        c.equal(Clause::Inspection, &[], "the order of the ids", &true, &(sent == seen))?;
    }
    let got = c.client().take(&p, sent.len()).await?;
    c.client().remove(&got).await
}

/// Browsing shows which messages are ready, delayed or held.
async fn browse_states(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let delay = c.timing().delay + c.timing().soon;
    let leased = c.client().push(&p, &[c.message()]).await?;
    let held = c.client().take(&p, 1).await?;
    let ready = c.client().push(&p, &[c.message()]).await?;
    let delayed = c.client().push(&p, &[c.message().with_delay(delay)]).await?;
    let browsed =
        c.ok(Clause::Inspection, "browsing", c.client().inspect()?.browse(&p, Page::of(10)).await)?;
    let seen = |state| -> Vec<MessageId> {
        browsed.iter().filter(|browsed| browsed.state == state).map(|browsed| browsed.message.id()).collect()
    };
    c.equal(Clause::Inspection, &leased, "leased", &leased, &seen(MessageState::Leased))?;
    c.equal(Clause::Inspection, &ready, "ready", &ready, &seen(MessageState::Ready))?;
    c.equal(Clause::Inspection, &delayed, "delayed", &delayed, &seen(MessageState::Delayed))?;
    let dues = browsed.iter().filter_map(|browsed| Some((browsed.state, browsed.due_in?)));
    let wrong: Vec<_> = dues
        .filter(|(state, due_in)| *state != MessageState::Delayed || *due_in > delay || due_in.is_zero())
        .collect();
    c.equal(Clause::Inspection, &delayed, "due within its delay, if that is told, for", &Vec::new(), &wrong)?;
    c.client().remove(&held).await
}

/// After browsing, every message is still there for every client, and was delivered to nobody.
async fn browse_leases_nothing(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &c.messages(5, |_, message| message)).await?;
    for _ in 0..3 {
        browse_all(c, c.client(), &p, 2).await?;
    }
    let other = c.fresh().await?;
    let got = other.pull_now(&p, 10).await?;
    c.same(Clause::Inspection, "everything, at once, after browsing", &sent, &got)?;
    if Need::DeliveryCount.is_declared(c.capabilities()) {
        let counts: Vec<_> = got.iter().map(|delivery| delivery.delivery_count).collect();
        c.equal(Clause::Inspection, &[], "delivery counts of", &vec![Some(1); 5], &counts)?;
    }
    other.remove(&got).await
}

async fn deleted(c: &Context, p: &PartitionId, ids: &[MessageId]) -> CaseResult<Vec<DeleteOutcome>> {
    let answers = c.client().inspect()?.delete(p, ids).await;
    c.ok(Clause::Deletion, "deleting", answers.into_iter().collect())
}

/// Waiting messages are deleted, held ones are left alone, and unknown ones are not found.
async fn delete(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let held_id = c.client().push(&p, &[c.message()]).await?;
    let held = c.client().take(&p, 1).await?;
    let (waiting, staying) = (c.message(), c.message());
    let (gone, stays) = (waiting.id(), staying.id());
    c.client().push(&p, &[waiting, staying]).await?;
    let never = MessageId::new();
    let asked = [&held_id[..], &[gone, never, gone]].concat();
    let outcomes = deleted(c, &p, &asked).await?;
    let expected =
        vec![DeleteOutcome::Leased, DeleteOutcome::Deleted, DeleteOutcome::NotFound, DeleteOutcome::NotFound];
    c.equal(Clause::Deletion, &asked, "the outcomes", &expected, &outcomes)?;
    let got = c.client().pull(&p, 10).await?;
    c.in_order(Clause::Deletion, "what was not deleted", &[stays], &got)?;
    c.client().remove(&got).await?;
    c.client().remove(&held).await?;
    let outcomes = deleted(c, &p, &[stays]).await?;
    c.equal(
        Clause::Deletion,
        &[stays],
        "the outcome for what was removed",
        &vec![DeleteOutcome::NotFound],
        &outcomes,
    )
}

/// An id is deleted only in the partition that the call names.
async fn delete_here_only(c: &Context) -> CaseResult {
    let (a, b) = (c.partition("a")?, c.partition("b")?);
    let sent = c.client().push(&a, &[c.message()]).await?;
    for place in [&b, &a.dead_letters()] {
        let outcomes = deleted(c, place, &sent).await?;
        c.equal(Clause::Deletion, &sent, "the outcome elsewhere", &vec![DeleteOutcome::NotFound], &outcomes)?;
    }
    let got = c.client().take(&a, 1).await?;
    c.in_order(Clause::PartitionsApart, "the message where it was", &sent, &got)?;
    c.client().remove(&got).await
}

/// A purge removes waiting messages, in this partition only, and no held ones.
async fn purge(c: &Context) -> CaseResult {
    let (p, other) = (c.partition("work")?, c.partition("other")?);
    let kept = c.client().push(&other, &[c.message()]).await?;
    c.client().push(&p, &c.messages(2, |_, message| message)).await?;
    let held = c.client().take(&p, 2).await?;
    c.client().push(&p, &c.messages(5, |_, message| message)).await?;
    let purged = c.ok(Clause::Deletion, "a purge", c.client().inspect()?.purge(&p, 100).await)?;
    c.equal(Clause::Deletion, &[], "the number purged", &5, &purged)?;
    c.client().nothing(&p, c.timing().slack, Clause::Deletion, "nothing left to pull").await?;
    c.client().remove(&held).await?;
    let got = c.client().take(&other, 1).await?;
    c.in_order(Clause::Deletion, "another partition's message", &kept, &got)?;
    c.client().remove(&got).await?;
    let purged = c.ok(Clause::Deletion, "a purge", c.client().inspect()?.purge(&p, 100).await)?;
    c.equal(Clause::Deletion, &[], "the number purged of an empty partition", &0, &purged)
}

/// A purge proceeds in steps of the requested size; the last, smaller one shows the end.
async fn purge_limit(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    c.client().push(&p, &c.messages(7, |_, message| message)).await?;
    for expected in [3, 3, 1, 0] {
        let purged = c.ok(Clause::Deletion, "a purge", c.client().inspect()?.purge(&p, 3).await)?;
        c.equal(Clause::Deletion, &[], "the number purged of at most 3", &expected, &purged)?;
    }
    Ok(())
}

/// A purge while consumers pull: each message is either removed by a consumer or purged.
async fn purge_during_pulls(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let other = c.fresh().await?;
    let sent = c.client().push(&p, &c.messages(200, |_, message| message)).await?;
    let purging = async {
        let mut purged = 0;
        for _ in 0..10 {
            purged += c.ok(Clause::Deletion, "a purge", other.inspect()?.purge(&p, 10).await)?;
            tokio::task::yield_now().await;
        }
        CaseResult::Ok(purged)
    };
    let consuming = async {
        let mut seen = Vec::new();
        loop {
            let got = c.client().pull_with(&p, c.client().request(3, c.timing().slack)).await?;
            if got.is_empty() {
                return CaseResult::Ok(seen);
            }
            tokio::task::yield_now().await;
            c.client().remove(&got).await?;
            seen.extend(ids(&got));
        }
    };
    let (purged, seen) = futures_util::join!(purging, consuming);
    c.equal(Clause::Deletion, &[], "purged and removed together", &sent.len(), &(purged? + seen?.len()))
}

/// Cancelling removes waiting messages; the holder of a held one learns of it when it extends.
async fn cancel(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let held_id = c.client().push(&p, &[c.message()]).await?;
    let held = c.client().take(&p, 1).await?;
    let waiting = c.client().push(&p, &[c.message()]).await?;
    let other = c.fresh().await?;
    let asked = [&held_id[..], &waiting, &[MessageId::new()]].concat();
    let answers = other.inspect()?.request_cancel(&p, &asked).await;
    let outcomes =
        c.ok(Clause::Deletion, "cancelling", answers.into_iter().collect::<anyqueue::Result<Vec<_>>>())?;
    let expected = vec![CancelOutcome::Requested, CancelOutcome::Removed, CancelOutcome::NotFound];
    c.equal(Clause::Deletion, &asked, "the outcomes", &expected, &outcomes)?;
    for delivery in &held {
        for _ in 0..2 {
            let outcome = c.client().extend(delivery, c.timing().long_lease).await?;
            c.equal(
                Clause::Extend,
                &held_id,
                "the holder's answer",
                &ExtendOutcome::CancelRequested,
                &outcome,
            )?;
        }
    }
    other
        .nothing(&p, c.timing().slack, Clause::Deletion, "the held message still held, the other gone")
        .await?;
    c.client().remove(&held).await
}

/// What is not declared returns `Unsupported`, or is not there at all.
async fn undeclared_is_unsupported(c: &Context) -> CaseResult {
    let (p, declared) = (c.partition("work")?, c.capabilities().inspect);
    let storage = c.client().storage();
    let any = declared.ready || declared.delayed || declared.leased || declared.dead || declared.list;
    let any = any || declared.browse || declared.delete || declared.purge || declared.cancel;
    c.equal(Clause::Unsupported, &[], "`inspect()` as declared:", &any, &storage.inspect().is_some())?;
    c.equal(
        Clause::Unsupported,
        &[],
        "`pause()` as declared:",
        &c.capabilities().pause,
        &storage.pause().is_some(),
    )?;
    let Some(inspect) = storage.inspect() else { return Ok(()) };
    let (kind, one) = (ErrorKind::Unsupported, [MessageId::new()]);
    if !declared.list {
        c.error(Clause::Unsupported, "the list", kind, &inspect.partitions(Page::of(1)).await)?;
    }
    if !declared.browse {
        c.error(Clause::Unsupported, "browsing", kind, &inspect.browse(&p, Page::of(1)).await)?;
    }
    if !declared.purge {
        c.error(Clause::Unsupported, "a purge", kind, &inspect.purge(&p, 1).await)?;
    }
    if !declared.delete {
        c.error(
            Clause::Unsupported,
            "deleting",
            kind,
            &inspect.delete(&p, &one).await.into_iter().collect::<anyqueue::Result<Vec<_>>>(),
        )?;
    }
    if !declared.cancel {
        let answers =
            inspect.request_cancel(&p, &one).await.into_iter().collect::<anyqueue::Result<Vec<_>>>();
        c.error(Clause::Unsupported, "cancelling", kind, &answers)?;
    }
    Ok(())
}

async fn new_headers_browsed(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    push_one(c, &p, c.message().with_header("name", "old")).await?;
    let held = c.client().take(&p, 1).await?;
    let new = Headers::from([("name".to_owned(), "new".to_owned())]);
    postpone(c.client(), &held, Duration::ZERO, Some(new.clone())).await?;
    let shown = c.ok(Clause::Inspection, "a page", c.client().inspect()?.browse(&p, Page::of(10)).await)?;
    let headers: Vec<_> = shown.iter().map(|shown| shown.message.headers().clone()).collect();
    c.equal(Clause::Inspection, &ids(&held), "the headers shown", &vec![new], &headers)
}

async fn counts_of_a_group(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    c.client().push(&p, &c.messages(3, |_, message| message.with_group("g"))).await?;
    let counts = c.ok(Clause::Inspection, "counts", c.client().inspect()?.counts(&p).await)?;
    c.equal(
        Clause::Inspection,
        &[],
        "ready, with those that wait behind their head:",
        &Some(3),
        &counts.ready,
    )
}

async fn counts_of_held_dead(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    dead_letter(c, &p).await?;
    let held = c.client().take(&p.dead_letters(), 1).await?;
    let counts = c.ok(Clause::Inspection, "counts", c.client().inspect()?.counts(&p).await)?;
    c.equal(Clause::Inspection, &ids(&held), "dead, with the one that is held:", &Some(1), &counts.dead)?;
    c.client().remove(&held).await
}

async fn cancel_delayed(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let id = push_one(c, &p, c.message().with_delay(c.timing().delay)).await?;
    for outcome in c.client().inspect()?.request_cancel(&p, &[id]).await {
        c.ok(Clause::Deletion, "a request for cancellation", outcome)?;
    }
    let during = c.timing().delay + c.timing().slack + c.timing().delay / 2;
    c.client().nothing(&p, during, Clause::Deletion, "a cancelled message to be gone").await
}

async fn purge_leaves_dead(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let dead = dead_letter(c, &p).await?;
    push_one(c, &p, c.message()).await?;
    let purged = c.ok(Clause::Deletion, "a purge", c.client().inspect()?.purge(&p, 10).await)?;
    c.equal(Clause::Deletion, &[], "purged", &1, &purged)?;
    removes(c, Clause::PartitionsApart, "the dead letter", &p.dead_letters(), &[dead]).await
}
