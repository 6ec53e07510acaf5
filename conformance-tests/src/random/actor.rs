//! One process of a plan: it knows what it pushed and what it holds, and carries out its steps with that.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{
    Action, Extension, MoveGuarantee, PullQueueStorage as _, PullRequest, PushQueueStorage as _,
    QueueStorage as _, RawDelivery, Settlement, Storage as _, Successor, TaskEnd,
};
use anyqueue::{Amend, Headers, MAX_PAGE, MessageData, MessageId, Page, PartitionId, Result};
use futures_util::future::{Either, select};
use tokio_util::sync::CancellationToken;

use super::ends;
use super::plan::{Act, Change, End, Fate, Message, Payload, Place, Pull, Settle, Whose};
use super::stage::{Stage, not_opened, partition};
use crate::account::Stuck;
use crate::clause::Clause;
use crate::context::scheduling;
use crate::history::Op;
use crate::recorder::Recorder;

/// Longer than 64 KiB, where some backends truncate.
const LONG_BYTES: usize = 70_000;

/// A number of retries that no plan of seconds reaches.
const MANY_RETRIES: u32 = 300;
const LONG: Duration = Duration::from_hours(100);

/// A process at work.
pub(super) struct Actor<'a> {
    stage: &'a Stage,
    process: usize,
    instance: u32,
    client: Recorder,
    sent: Vec<(PartitionId, MessageData)>,
    held: Vec<RawDelivery>,
    settled: Vec<RawDelivery>,
    /// Ends that it has asked for.
    ended: usize,
}

type Done<T = ()> = std::result::Result<T, Stuck>;

impl<'a> Actor<'a> {
    pub(super) async fn new(stage: &'a Stage, process: usize) -> Done<Self> {
        let client = stage.open(&name(process, 0)).await.map_err(|error| not_opened(&error))?;
        let (sent, held, settled) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { stage, process, instance: 0, client, sent, held, settled, ended: 0 })
    }

    pub(super) async fn act(&mut self, act: &Act) -> Done {
        match act {
            Act::Push { place, messages } => self.push(*place, messages).await,
            Act::PushAgain { nth } => self.push_again(*nth).await,
            Act::Pull(pull) => return self.pull(pull).await,
            Act::Settle(items) => self.settle(items).await,
            Act::Exchange(items, pull) => return self.exchange(items, pull).await,
            Act::Extend { whose, nth, duration } => self.extend(*whose, *nth, *duration).await,
            Act::Delete { place, nth } => self.delete(*place, *nth).await,
            Act::Cancel { place, nth } => self.cancel(*place, *nth).await,
            Act::Amend { place, nths, change } => self.amend(*place, nths, *change).await,
            Act::Purge { place, limit } => self.purge(*place, *limit).await,
            Act::Counts { place } => self.count(*place).await,
            Act::Browse { place } => self.browse(*place).await,
            Act::Pause { place, paused } => self.pause(*place, *paused).await,
            Act::Close => {
                let turn = self.stage.turn().await;
                let _ = self.client.close().await;
                drop(turn);
                return self.reopen().await;
            }
            Act::Crash => {
                self.client.note(Op::Crash);
                return self.reopen().await;
            }
            Act::Sleep(time) => self.stage.clock.sleep(*time).await,
        }
        Ok(())
    }

    /// Releases what it holds.
    pub(super) async fn leave(&mut self) {
        for delivery in std::mem::take(&mut self.held) {
            let _turn = self.stage.turn().await;
            self.client.settle(&[Settlement::new(delivery.lease, Action::Release)]).await;
        }
    }

    pub(super) async fn close(self) {
        let _ = self.client.close().await;
    }

    async fn reopen(&mut self) -> Done {
        self.instance += 1;
        self.held.clear();
        self.settled.clear();
        self.client =
            self.stage.open(&name(self.process, self.instance)).await.map_err(|error| not_opened(&error))?;
        Ok(())
    }

    async fn push(&mut self, place: usize, messages: &[Message]) {
        let _turn = self.stage.turn().await;
        let messages: Vec<_> = messages.iter().map(|message| self.message(message)).collect();
        let place = partition(Place { number: place, dead: false });
        self.client.push(&place, &messages).await;
        self.sent.extend(messages.into_iter().map(|message| (place.clone(), message)));
    }

    async fn push_again(&mut self, nth: usize) {
        let _turn = self.stage.turn().await;
        if let Some((place, message)) = pick(&self.sent, nth) {
            self.client.push(&place, &[message]).await;
        }
    }

    /// Creates a message. Its id contains only seed and number, so that the same plan has the same ids.
    fn message(&self, message: &Message) -> MessageData {
        let mut sent = self.stage.lock_sent();
        let number = sent.len() as u64;
        let mut id = [0; 16];
        for (byte, value) in id.iter_mut().zip(number.to_be_bytes().iter().skip(2).chain(&[0x70, 0, 0x80])) {
            *byte = *value;
        }
        for (byte, value) in id.iter_mut().skip(9).zip(self.stage.seed.to_be_bytes()) {
            *byte = value;
        }
        let mut made = MessageData::with_id(MessageId::from_bytes(id), payload(message.payload, number))
            .with_priority(message.priority);
        if let Some(delay) = message.delay {
            made = made.with_delay(delay);
        }
        if let Some(group) = message.group {
            made = made.with_group(group_name(group));
        }
        if let Some(wait) = message.urgent_after {
            made = made.with_urgent_after(wait);
        }
        if let Some(key) = message.key {
            made = made.with_dedup_key(format!("key {key}")).with_on_duplicate(message.on_duplicate);
        }
        if message.headers {
            made = made.with_header("Content-Type", "text/plain").with_task_id(format!("task {number}"));
        }
        if message.fields {
            made = made
                .with_session_id(format!("session {number}"))
                .with_max_retries(MANY_RETRIES)
                .with_max_duration(LONG)
                .with_time_to_live(2 * LONG);
        }
        sent.push(made.clone());
        made
    }

    async fn pull(&mut self, pull: &Pull) -> Done {
        let request = request(pull);
        let _turn = self.stage.turn().await;
        let place = partition(pull.place);
        let stop = request.stop.clone();
        let pulling = self.client.pull(&place, request);
        let got = self.within(pull, stop, pulling).await?;
        self.held.extend(got.and_then(Result::ok).into_iter().flatten());
        Ok(())
    }

    async fn exchange(&mut self, items: &[Settle], pull: &Pull) -> Done {
        let request = request(pull);
        let _turn = self.stage.turn().await;
        let (place, settlements) = (partition(pull.place), self.settlements(items));
        let stop = request.stop.clone();
        // Its settlements are always carried through, so the call is never dropped.
        let whole =
            Pull { end: if let End::Drop(_) = pull.end { End::None } else { pull.end }, ..pull.clone() };
        let exchanging = self.client.exchange(&settlements, &place, request);
        let got = self.within(&whole, stop, exchanging).await?;
        self.let_go(&settlements);
        self.held.extend(got.and_then(|(_, got)| got.ok()).into_iter().flatten());
        Ok(())
    }

    /// Waits for a call that may wait, ends it as planned, and waits no longer than the call may take.
    /// Returns `None` if the call was dropped.
    async fn within<T>(
        &self,
        pull: &Pull,
        stop: CancellationToken,
        call: impl Future<Output = T>,
    ) -> Done<Option<T>> {
        let mut call = pin!(call);
        let clock = &self.stage.clock;
        match pull.end {
            End::None => {}
            End::Stop(after) => match select(&mut call, pin!(clock.sleep(after))).await {
                Either::Left((answer, _)) => return Ok(Some(answer)),
                Either::Right(_) => stop.cancel(),
            },
            End::Drop(after) => match select(&mut call, pin!(clock.sleep(after))).await {
                Either::Left((answer, _)) => return Ok(Some(answer)),
                Either::Right(_) => return Ok(None),
            },
        }
        let left = if stop.is_cancelled() { Duration::ZERO } else { pull.wait };
        let limit = left + self.stage.rules.slack + self.stage.rules.wake + scheduling();
        match select(call, pin!(clock.sleep(limit))).await {
            Either::Left((answer, _)) => Ok(Some(answer)),
            Either::Right(_) => Err(Stuck {
                clause: if stop.is_cancelled() { Clause::DroppedPull } else { Clause::PullWait },
                about: None,
                expected: "a pull to end with its wait, or soon after it was asked to stop",
                seen: format!("it went on for {limit:?}"),
            }),
        }
    }

    async fn settle(&mut self, items: &[Settle]) {
        let _turn = self.stage.turn().await;
        let settlements = self.settlements(items);
        if !settlements.is_empty() {
            self.client.settle(&settlements).await;
            self.let_go(&settlements);
        }
    }

    fn settlements(&mut self, items: &[Settle]) -> Vec<Settlement> {
        items.iter().filter_map(|item| self.settlement(item)).collect()
    }

    fn settlement(&mut self, item: &Settle) -> Option<Settlement> {
        let delivery = pick(self.deliveries(item.whose), item.nth)?;
        let action = action(item.fate, &delivery.lease.partition);
        let successor = |(number, message): &(usize, Message)| Successor {
            partition: partition(Place { number: *number, dead: false }),
            message: self.message(message),
        };
        let then: Vec<_> = item.then.iter().map(successor).collect();
        self.sent.extend(then.iter().map(|it| (it.partition.clone(), it.message.clone())));
        let end = self.end(&action, &delivery.lease.partition, then.len());
        Some(Settlement::new(delivery.lease, action).with_then(then).with_end(end))
    }

    /// If an end is one step with its settlement, three of four removed tasks get an end. Otherwise an end by
    /// an owner that lost its lease may count, which no plan can distinguish from a loss.
    fn end(&mut self, action: &Action, partition: &PartitionId, successors: usize) -> Option<Arc<TaskEnd>> {
        let ledger = self.client.capabilities().ledger == Some(MoveGuarantee::Atomic);
        if !ledger || *action != Action::Remove || partition.is_dead_letters() {
            return None;
        }
        self.ended += 1;
        (!self.ended.is_multiple_of(4)).then(|| Arc::new(ends::end(self.process, self.ended, successors)))
    }

    fn deliveries(&self, whose: Whose) -> &[RawDelivery] {
        match whose {
            Whose::Held => &self.held,
            Whose::Settled => &self.settled,
        }
    }

    fn let_go(&mut self, settlements: &[Settlement]) {
        let gone = |delivery: &RawDelivery| settlements.iter().any(|s| s.lease == delivery.lease);
        let (settled, held) = std::mem::take(&mut self.held).into_iter().partition(gone);
        self.held = held;
        self.settled.extend::<Vec<_>>(settled);
    }

    async fn extend(&mut self, whose: Whose, nth: usize, duration: Duration) {
        let _turn = self.stage.turn().await;
        if let Some(delivery) = pick(self.deliveries(whose), nth) {
            self.client.extend(&[Extension { lease: delivery.lease, duration }]).await;
        }
    }

    async fn delete(&self, place: Place, nth: usize) {
        let _turn = self.stage.turn().await;
        let message = pick(&self.stage.lock_sent(), nth);
        if let (Some(message), Some(inspect)) = (message, self.client.inspect()) {
            inspect.delete(&partition(place), &[message.id()]).await;
        }
    }

    async fn cancel(&self, place: Place, nth: usize) {
        let _turn = self.stage.turn().await;
        let message = pick(&self.stage.lock_sent(), nth);
        if let (Some(message), Some(inspect)) = (message, self.client.inspect()) {
            inspect.request_cancel(&partition(place), &[message.id()]).await;
        }
    }

    async fn amend(&self, place: usize, nths: &[usize], change: Change) {
        let _turn = self.stage.turn().await;
        let ids: Vec<_> = {
            let sent = self.stage.lock_sent();
            nths.iter().filter_map(|nth| pick(&sent, *nth)).map(|message| message.id()).collect()
        };
        if let Some(amend) = self.client.amend().filter(|_| !ids.is_empty()) {
            amend.amend(&partition(Place { number: place, dead: false }), &ids, &amendment(change)).await;
        }
    }

    async fn purge(&self, place: Place, limit: usize) {
        let _turn = self.stage.turn().await;
        if let Some(inspect) = self.client.inspect() {
            let _ = inspect.purge(&partition(place), limit).await;
        }
    }

    async fn count(&self, place: usize) {
        let _turn = self.stage.turn().await;
        if let Some(inspect) = self.client.inspect() {
            let _ = inspect.counts(&partition(Place { number: place, dead: false })).await;
        }
    }

    async fn browse(&self, place: Place) {
        let _turn = self.stage.turn().await;
        if let Some(inspect) = self.client.inspect() {
            let _ = inspect.browse(&partition(place), Page::of(MAX_PAGE)).await;
        }
    }

    async fn pause(&self, place: usize, paused: bool) {
        let _turn = self.stage.turn().await;
        if let Some(pause) = self.client.pause() {
            let _ = pause.set_paused(&partition(Place { number: place, dead: false }), paused).await;
        }
    }
}

fn request(pull: &Pull) -> PullRequest {
    PullRequest::new(pull.max, pull.wait, pull.lease).with_group_members(pull.group_members)
}

fn name(process: usize, instance: u32) -> Arc<str> {
    format!("p{process}.{instance}").into()
}

fn group_name(group: u8) -> String {
    format!("group {group}")
}

fn amendment(change: Change) -> Amend {
    let amend = Amend::new();
    match change {
        Change::Priority(priority) => amend.with_priority(priority),
        Change::Due(delay) => amend.due_in(delay),
        Change::Join(group) => amend.with_group(group_name(group)),
        Change::Leave => amend.without_group(),
        Change::Disable => amend.disable(),
        Change::Enable => amend.enable(),
    }
}

/// Returns the `nth` item, counting round and round.
fn pick<T: Clone>(all: &[T], nth: usize) -> Option<T> {
    all.get(nth.checked_rem(all.len())?).cloned()
}

fn payload(kind: Payload, number: u64) -> Vec<u8> {
    match kind {
        Payload::Plain => format!("m{number}").into_bytes(),
        Payload::Padded => format!(" m{number}\r\n").into_bytes(),
        Payload::WithNul => format!("m{number}\0end").into_bytes(),
        Payload::NoUtf8 => [&[0xff, 0xfe], number.to_string().as_bytes()].concat(),
        Payload::Long => number.to_string().into_bytes().into_iter().cycle().take(LONG_BYTES).collect(),
    }
}

fn action(fate: Fate, place: &PartitionId) -> Action {
    let new_headers =
        |wanted: bool| wanted.then(|| Headers::from([("attempt".to_owned(), "later".to_owned())]));
    match fate {
        Fate::Remove => Action::Remove,
        Fate::Release => Action::Release,
        Fate::Retry => Action::Retry,
        Fate::Postpone { delay, headers } => Action::Postpone { delay, headers: new_headers(headers) },
        Fate::Move { to, headers } => Action::Move { to: partition(to), headers: new_headers(headers) },
        Fate::Bury { headers } => {
            let to = if place.is_dead_letters() { place.live() } else { place.dead_letters() };
            Action::Move { to, headers: new_headers(headers) }
        }
    }
}
