//! A stored message that cannot be read is delivered as it is: it stops nobody, dies, and is not lost. The
//! history assumes that a message is what was pushed, so these cases work without it and judge by themselves.

use std::sync::Arc;

use anyqueue::adapter::{Action, PullRequest, RawDelivery, Storage};
use anyqueue::{
    ErrorKind, Headers, MessageData, MessageId, MessageState, Page, PartitionId, PushOutcome, SettleOutcome,
    header,
};

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Context, settlement};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "unreadable.stops_nobody", [ContentIntact, ReadyAtOnce], stops_nobody)
        .needs(&[Need::Corruptible])
        .kills(&[Fault::UnreadableDropped, Fault::UnreadableComesForever, Fault::UnreadableFailsPull]),
    case!(Storage, "unreadable.counted", [ContentIntact, DeliveryCount], counted)
        .needs(&[Need::Corruptible, Need::DeliveryCount])
        .kills(&[Fault::UnreadableNotCounted]),
    case!(Storage, "unreadable.moved_as_it_is", [ContentIntact, SettleActions, DeadLetters], moved_as_it_is)
        .needs(&[Need::Corruptible])
        .kills(&[Fault::UnreadableLosesBytes]),
    case!(Storage, "unreadable.shown_and_deleted", [ContentIntact, Inspection, Deletion], shown_and_deleted)
        .needs(&[Need::Corruptible, Need::Browse, Need::Delete])
        .kills(&[Fault::UnreadableFailsPage]),
];

/// Three messages, of which the second cannot be read.
pub(in crate::cases) struct Three {
    pub(in crate::cases) storage: Arc<dyn Storage>,
    pub(in crate::cases) p: PartitionId,
    pub(in crate::cases) sent: [MessageData; 3],
}

impl Three {
    pub(in crate::cases) async fn push(c: &Context) -> CaseResult<Self> {
        let (storage, p) = (c.unseen().await?, c.partition("work")?);
        let sent = [c.message(), c.message(), c.message()];
        let answers = storage.push(&p, &sent).await;
        let right = answers.iter().all(|answer| matches!(answer, Ok(PushOutcome::Stored(_))));
        c.check(
            Clause::Stored,
            &[],
            right && answers.len() == 3,
            "three messages to be stored",
            format!("{answers:?}"),
        )?;
        let three = Self { storage, p, sent };
        c.corrupt(&three.p, three.damaged().id()).await?;
        Ok(three)
    }

    fn damaged(&self) -> &MessageData {
        &self.sent[1]
    }

    /// Removes those that can be read, and returns the other.
    async fn take_damaged(&self, c: &Context) -> CaseResult<RawDelivery> {
        let got = gather(c, &self.storage, &self.p, 3).await?;
        let (mut damaged, right): (Vec<_>, Vec<_>) =
            got.into_iter().partition(|delivery| delivery.unreadable.is_some());
        let seen: Vec<_> = right.iter().map(|delivery| delivery.message.payload().to_vec()).collect();
        let expected = [&self.sent[0], &self.sent[2]].map(|message| message.payload().to_vec());
        let whole = seen.len() == 2 && expected.iter().all(|payload| seen.contains(payload));
        c.check(
            Clause::ContentIntact,
            &[],
            whole,
            "the other two as they were pushed",
            format!("{right:?}"),
        )?;
        settle(c, &self.storage, &right, &Action::Remove).await?;
        let damaged = damaged
            .pop()
            .ok_or_else(|| c.failed(Clause::ContentIntact, &[], "one that is unreadable", "none"))?;
        self.as_it_is(c, &damaged)?;
        Ok(damaged)
    }

    /// The message comes once more, as it came before.
    async fn take_again(
        &self,
        c: &Context,
        at: &PartitionId,
        before: &RawDelivery,
    ) -> CaseResult<RawDelivery> {
        let mut got = gather(c, &self.storage, at, 1).await?;
        let again =
            got.pop().ok_or_else(|| c.failed(Clause::ContentIntact, &[], "it once more", "nothing"))?;
        self.as_it_is(c, &again)?;
        let same = (again.lease.id, again.message.payload()) == (before.lease.id, before.message.payload());
        let seen = format!("{} of {} bytes", again.lease.id, again.message.payload().len());
        let told = format!("{} with the same {} bytes", before.lease.id, before.message.payload().len());
        c.check(Clause::ContentIntact, &[], same, told, seen)?;
        Ok(again)
    }

    pub(in crate::cases) fn as_it_is(&self, c: &Context, delivery: &RawDelivery) -> CaseResult {
        let why = delivery.unreadable.as_ref().map(anyqueue::Error::kind);
        c.equal(
            Clause::ContentIntact,
            &[],
            "it to be delivered as unreadable",
            &Some(ErrorKind::Corrupt),
            &why,
        )?;
        let (bytes, payload) = (delivery.message.payload(), self.damaged().payload());
        let kept = bytes.windows(payload.len()).any(|window| window == payload);
        c.check(
            Clause::ContentIntact,
            &[],
            kept,
            "what is stored as its payload",
            format!("{} bytes: {bytes:?}", bytes.len()),
        )
    }

    /// Nothing comes any more.
    pub(in crate::cases) async fn end(&self, c: &Context) -> CaseResult {
        let request = PullRequest::new(1, c.timing().slack, c.timing().long_lease);
        for at in [self.p.clone(), self.p.dead_letters()] {
            let got = c.ok(Clause::PullBounds, "a pull", self.storage.pull(&at, request.clone()).await)?;
            c.check(Clause::SettleActions, &[], got.is_empty(), "nothing any more", format!("{got:?}"))?;
        }
        c.ok(Clause::Close, "close", self.storage.close().await)
    }
}

/// Takes this many deliveries, in as many pulls as necessary. If one may come to two clients at once, it
/// counts once.
pub(in crate::cases) async fn gather(
    c: &Context,
    storage: &Arc<dyn Storage>,
    at: &PartitionId,
    n: usize,
) -> CaseResult<Vec<RawDelivery>> {
    let mut got: Vec<RawDelivery> = Vec::new();
    while got.len() < n {
        let request = PullRequest::new(n - got.len(), c.timing().soon, c.timing().long_lease);
        let answer = storage.pull(at, request).await;
        let more = answer.map_err(|error| {
            c.failed(
                Clause::ContentIntact,
                &[],
                "a pull to succeed, whatever is stored",
                format!("the error {error}"),
            )
        })?;
        if more.is_empty() {
            let seen = format!("{} within {:?}", got.len(), c.timing().soon);
            return Err(c.failed(
                Clause::ContentIntact,
                &[],
                format!("{n} deliveries from {at}, with those that cannot be read"),
                seen,
            ));
        }
        let known = |id: MessageId| move |one: &RawDelivery| one.lease.id == id;
        for delivery in more {
            if !got.iter().any(known(delivery.lease.id)) {
                got.push(delivery);
            }
        }
    }
    Ok(got)
}

pub(in crate::cases) async fn settle(
    c: &Context,
    storage: &Arc<dyn Storage>,
    held: &[RawDelivery],
    action: &Action,
) -> CaseResult {
    let settlements: Vec<_> = held.iter().map(|delivery| settlement(delivery, action.clone())).collect();
    let answers = storage.settle(&settlements).await;
    let settled = answers.iter().all(|answer| matches!(answer, Ok(SettleOutcome::Settled)));
    c.check(Clause::SettleOutcomes, &[], settled, format!("Settled, by {action:?}"), format!("{answers:?}"))
}

/// The messages before and behind it come with it, in one pull if the backend has them together.
async fn stops_nobody(c: &Context) -> CaseResult {
    let three = Three::push(c).await?;
    let damaged = three.take_damaged(c).await?;
    settle(c, &three.storage, &[damaged], &Action::Remove).await?;
    three.end(c).await
}

async fn counted(c: &Context) -> CaseResult {
    let three = Three::push(c).await?;
    let mut held = three.take_damaged(c).await?;
    for count in 1..=3 {
        c.equal(Clause::DeliveryCount, &[], "the delivery count", &Some(count), &held.delivery_count)?;
        settle(c, &three.storage, std::slice::from_ref(&held), &Action::Retry).await?;
        held = three.take_again(c, &three.p, &held).await?;
    }
    settle(c, &three.storage, &[held], &Action::Remove).await?;
    three.end(c).await
}

/// The message goes to the dead letters with a reason, and back: the same bytes under the same id, with the
/// headers that the moves gave.
async fn moved_as_it_is(c: &Context) -> CaseResult {
    let three = Three::push(c).await?;
    let held = three.take_damaged(c).await?;
    let (dead, p) = (three.p.dead_letters(), three.p.clone());
    let headers = Headers::from([(header::DEAD_REASON.to_owned(), "as the case says".to_owned())]);
    settle(
        c,
        &three.storage,
        std::slice::from_ref(&held),
        &Action::Move { to: dead.clone(), headers: Some(headers.clone()) },
    )
    .await?;
    let held = three.take_again(c, &dead, &held).await?;
    c.equal(Clause::SettleActions, &[], "the new headers", &headers, held.message.headers())?;
    let back = Action::Move { to: p.clone(), headers: Some(Headers::new()) };
    settle(c, &three.storage, std::slice::from_ref(&held), &back).await?;
    let held = three.take_again(c, &p, &held).await?;
    c.equal(Clause::SettleActions, &[], "the new headers", &Headers::new(), held.message.headers())?;
    settle(c, &three.storage, &[held], &Action::Remove).await?;
    three.end(c).await
}

/// The message is on the page among the others, and can be found by its id.
async fn shown_and_deleted(c: &Context) -> CaseResult {
    let three = Three::push(c).await?;
    let inspect = three.storage.inspect();
    let inspect = inspect.ok_or_else(|| {
        c.failed(Clause::Inspection, &[], "inspection, as declared", "`inspect()` returns None")
    })?;
    let page = c.ok(
        Clause::Inspection,
        "a page with what cannot be read",
        inspect.browse(&three.p, Page::of(10)).await,
    )?;
    let shown: Vec<_> =
        page.iter().map(|shown| (shown.message.id(), shown.state, shown.unreadable.is_some())).collect();
    let mut expected: Vec<_> = three
        .sent
        .iter()
        .map(|message| (message.id(), MessageState::Ready, message.id() == three.damaged().id()))
        .collect();
    expected.sort_by_key(|(id, ..)| *id);
    c.equal(Clause::Inspection, &[], "the page (id, state, whether it is unreadable)", &expected, &shown)?;
    let ids: Vec<_> = three.sent.iter().map(MessageData::id).collect();
    let deleted = inspect.delete(&three.p, &ids).await;
    let all = deleted.iter().all(|answer| matches!(answer, Ok(anyqueue::DeleteOutcome::Deleted)));
    c.check(
        Clause::Deletion,
        &[],
        all && deleted.len() == 3,
        "all three to be deleted",
        format!("{deleted:?}"),
    )?;
    three.end(c).await
}
