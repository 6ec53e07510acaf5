//! Turns the calls of a running case into data: ids and leases become numbers, payloads become short texts.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use anyqueue::adapter::{self, Action, Lease, RawDelivery, Settlement};
use anyqueue::{
    Amend, AmendOutcome, Browsed, CancelOutcome, Counts, DeleteOutcome, ExtendOutcome, MessageData,
    MessageId, MessageState, PartitionId, PushOutcome, Regroup, Result, SettleOutcome, When,
};

use super::trace::{
    Action as Act, Amendment, Answer, ById, Cancellation, Change, Content, Deletion, Delivered,
    Event as Call, Extended, Extension as Extending, Head, Numbers, OnDuplicate, Op as Asked, Push, Pushed,
    Settled, Settlement as Settling, Shown, State, Successor, Trace,
};
use super::units::whole_us;
use super::{Event, History, Inner, Op};
use crate::check::Rules;

/// A text payload that is no longer than this is shown as it is.
const SHOWN_BYTES: usize = 80;

/// A history as data, and what its numbers stand for.
#[derive(Debug)]
pub(crate) struct Exported {
    pub(crate) trace: Trace,
    /// By number.
    pub(crate) messages: Vec<MessageId>,
    /// By number.
    pub(crate) deliveries: Vec<RawDelivery>,
}

impl History {
    /// The history so far.
    pub(crate) fn export(&self, rules: Rules) -> Exported {
        let inner = self.lock();
        let mut export = Export { start: self.start, inner: &inner, names: Names::of(&inner) };
        let events = inner.events.iter().map(|event| export.call(event)).collect();
        let names = export.names;
        let trace = Trace { head: Head { rules, planned: Vec::new() }, events };
        Exported { trace, messages: names.ids, deliveries: names.deliveries }
    }
}

struct Names {
    messages: HashMap<MessageId, usize>,
    ids: Vec<MessageId>,
    leases: HashMap<Lease, usize>,
    deliveries: Vec<RawDelivery>,
}

impl Names {
    fn of(inner: &Inner) -> Self {
        let mut ids: Vec<_> = inner.numbers.iter().map(|(id, number)| (*number, *id)).collect();
        ids.sort_unstable();
        let ids = ids.into_iter().map(|(_, id)| id).collect();
        Self { messages: inner.numbers.clone(), ids, leases: HashMap::new(), deliveries: Vec::new() }
    }

    fn message(&mut self, id: MessageId) -> usize {
        *self.messages.entry(id).or_insert_with(|| {
            self.ids.push(id);
            self.ids.len() - 1
        })
    }

    fn deliver(&mut self, delivery: &RawDelivery) -> usize {
        self.deliveries.push(delivery.clone());
        self.leases.insert(delivery.lease.clone(), self.deliveries.len() - 1);
        self.deliveries.len() - 1
    }
}

struct Export<'a> {
    start: Instant,
    inner: &'a Inner,
    names: Names,
}

impl Export<'_> {
    fn since_start(&self, moment: Instant) -> Duration {
        whole_us(moment.saturating_duration_since(self.start))
    }

    fn call(&mut self, event: &Event) -> Call {
        let (process, instance) = match event.client.rsplit_once('.') {
            Some((process, instance)) => (process, instance.parse().unwrap_or_default()),
            None => (&*event.client, 0),
        };
        Call {
            process: process.to_owned(),
            instance,
            invoked: self.since_start(event.invoked),
            returned: event.returned.map(|returned| self.since_start(returned)),
            op: self.op(&event.op, event.returned.is_some()),
        }
    }

    fn op(&mut self, op: &Op, ended: bool) -> Asked {
        match op {
            Op::Push { partition, ids, outcomes } => {
                let items = ids.iter().enumerate().map(|(at, id)| self.pushed(*id, outcomes.get(at), ended));
                Asked::Push { items: items.collect(), partition: partition.clone() }
            }
            Op::Pull { partition, max, wait, lease, group_members, stopped, outcome } => Asked::Pull {
                partition: partition.clone(),
                max: *max,
                wait: *wait,
                lease: *lease,
                group_members: *group_members,
                stopped: *stopped,
                answer: self.pulled(partition, outcome, ended),
            },
            Op::Settle { settlements, outcomes } => {
                let items = settlements.iter().enumerate();
                let items = items.map(|(at, settlement)| self.settled(settlement, outcomes.get(at), ended));
                Asked::Settle { items: items.collect() }
            }
            Op::Extend { extensions, outcomes } => {
                let item = |(at, extension): (usize, &anyqueue::adapter::Extension)| Extended {
                    message: self.names.message(extension.lease.id),
                    delivery: self.names.leases.get(&extension.lease).copied(),
                    duration: extension.duration,
                    answer: Answer::of(outcomes.get(at).cloned().map(|answer| answer.map(extending)), ended),
                };
                Asked::Extend { items: extensions.iter().enumerate().map(item).collect() }
            }
            Op::Delete { partition, ids, outcomes } => {
                let items = self.by_id(ids, outcomes, ended, |outcome| match outcome {
                    DeleteOutcome::Deleted => Deletion::Deleted,
                    DeleteOutcome::Leased => Deletion::Leased,
                    DeleteOutcome::NotFound => Deletion::NotFound,
                });
                Asked::Delete { partition: partition.clone(), items }
            }
            Op::Cancel { partition, ids, outcomes } => {
                let items = self.by_id(ids, outcomes, ended, |outcome| match outcome {
                    CancelOutcome::Removed => Cancellation::Removed,
                    CancelOutcome::Requested => Cancellation::Requested,
                    CancelOutcome::NotFound => Cancellation::NotFound,
                });
                Asked::Cancel { partition: partition.clone(), items }
            }
            Op::Amend { partition, ids, change, outcomes } => {
                let items = self.by_id(ids, outcomes, ended, |outcome| match outcome {
                    AmendOutcome::Amended => Amendment::Amended,
                    AmendOutcome::Leased => Amendment::Leased,
                    AmendOutcome::Dead => Amendment::Dead,
                    AmendOutcome::NotFound => Amendment::NotFound,
                });
                Asked::Amend { partition: partition.clone(), change: changed(change), items }
            }
            Op::Purge { partition, limit, outcome } => Asked::Purge {
                partition: partition.clone(),
                limit: *limit,
                answer: Answer::of(Some(outcome.clone()), ended),
            },
            Op::Counts { partition, outcome } => Asked::Counts {
                partition: partition.clone(),
                answer: Answer::of(Some(outcome.clone().map(numbers)), ended),
            },
            Op::Browse { partition, from_start, limit, outcome } => Asked::Browse {
                partition: partition.clone(),
                from_start: *from_start,
                limit: *limit,
                answer: self.shown(outcome, ended),
            },
            Op::Pause { partition, paused, outcome } => Asked::Pause {
                partition: partition.clone(),
                paused: *paused,
                answer: Answer::of(Some(outcome.clone()), ended),
            },
            Op::Close => Asked::Close,
            Op::Crash => Asked::Crash,
            Op::ChildTook { id, lease } => Asked::Took { message: self.names.message(*id), lease: *lease },
            Op::ChildRemoved { id } => Asked::Removed { message: self.names.message(*id) },
            Op::Drained => Asked::Drained,
            Op::Note(text) => Asked::Note { text: text.clone() },
        }
    }

    fn pushed(&mut self, id: MessageId, outcome: Option<&Result<PushOutcome>>, ended: bool) -> Pushed {
        let answer = outcome.cloned().map(|outcome| {
            outcome.map(|outcome| match outcome {
                PushOutcome::Stored(stored) if stored == id => Push::Stored,
                PushOutcome::Stored(other) => Push::StoredAs(self.names.message(other)),
                PushOutcome::Duplicate(_) => Push::Duplicate,
                PushOutcome::Replaced(other) => Push::Replaced(self.names.message(other)),
            })
        });
        let known = self.inner.messages.get(&id);
        Pushed {
            message: self.names.message(id),
            content: known.map(content).unwrap_or_default(),
            on_duplicate: known.map(on_duplicate).unwrap_or_default(),
            answer: Answer::of(answer, ended),
        }
    }

    fn pulled(
        &mut self,
        from: &PartitionId,
        outcome: &Result<Vec<RawDelivery>>,
        ended: bool,
    ) -> Answer<Vec<Delivered>> {
        let answer = outcome.as_ref().map(|got| got.iter().map(|one| self.delivered(from, one)).collect());
        Answer::of(Some(answer.map_err(Clone::clone)), ended)
    }

    fn delivered(&mut self, from: &PartitionId, delivery: &RawDelivery) -> Delivered {
        let lease = &delivery.lease;
        let other_id = (delivery.message.id() != lease.id).then(|| "the lease is on another id".to_owned());
        let elsewhere = || format!("the lease is on {}", lease.partition);
        Delivered {
            delivery: self.names.deliver(delivery),
            message: self.names.message(lease.id),
            content: content(&delivery.message),
            count: delivery.delivery_count,
            lease_until: delivery.lease_until.map(|until| self.since_start(until)),
            mislabelled: other_id.or_else(|| (lease.partition != *from).then(elsewhere)),
        }
    }

    fn settled(
        &mut self,
        Settlement { lease, action, then, .. }: &Settlement,
        outcome: Option<&Result<SettleOutcome>>,
        ended: bool,
    ) -> Settled {
        let name = |outcome| match outcome {
            SettleOutcome::Settled => Settling::Settled,
            SettleOutcome::Lost => Settling::Lost,
        };
        let answer = Answer::of(outcome.cloned().map(|outcome| outcome.map(name)), ended);
        Settled {
            message: self.names.message(lease.id),
            delivery: self.names.leases.get(lease).copied(),
            action: act(action),
            then: then.iter().map(|successor| self.successor(successor, &answer)).collect(),
            answer,
        }
    }

    fn successor(&mut self, successor: &adapter::Successor, settled: &Answer<Settling>) -> Successor {
        let message = &successor.message;
        let answer = match settled {
            // A message whose key or id is taken is left out.
            Answer::Ok(Settling::Settled) if self.may_be_duplicate(message) => Answer::Unknown,
            Answer::Ok(Settling::Settled) => Answer::Ok(Push::Stored),
            Answer::Ok(Settling::Lost) => Answer::Fail("lost".to_owned()),
            Answer::Fail(why) => Answer::Fail(why.clone()),
            Answer::Unknown | Answer::Missing => Answer::Unknown,
        };
        let pushed = Pushed {
            message: self.names.message(message.id()),
            content: content(message),
            on_duplicate: on_duplicate(message),
            answer,
        };
        Successor { partition: successor.partition.clone(), pushed }
    }

    fn may_be_duplicate(&self, message: &MessageData) -> bool {
        message.options().dedup_key.is_some() || self.inner.sent_twice.contains(&message.id())
    }

    fn by_id<O: Clone, T>(
        &mut self,
        ids: &[MessageId],
        outcomes: &[Result<O>],
        ended: bool,
        name: impl Fn(O) -> T,
    ) -> Vec<ById<T>> {
        let item = |(at, id): (usize, &MessageId)| ById {
            message: self.names.message(*id),
            answer: Answer::of(outcomes.get(at).cloned().map(|outcome| outcome.map(&name)), ended),
        };
        ids.iter().enumerate().map(item).collect()
    }

    fn shown(&mut self, outcome: &Result<Vec<Browsed>>, ended: bool) -> Answer<Vec<Shown>> {
        let answer = outcome.as_ref().map_err(Clone::clone).map(|page| {
            let show = |shown: &Browsed| Shown {
                message: self.names.message(shown.message.id()),
                state: state(shown.state),
            };
            page.iter().map(show).collect()
        });
        Answer::of(Some(answer), ended)
    }
}

fn numbers(counts: Counts) -> Numbers {
    Numbers {
        ready: counts.ready,
        delayed: counts.delayed,
        leased: counts.leased,
        disabled: counts.disabled.filter(|disabled| *disabled > 0),
        dead: counts.dead,
    }
}

fn state(state: MessageState) -> State {
    match state {
        MessageState::Ready => State::Ready,
        MessageState::Delayed => State::Delayed,
        MessageState::Leased => State::Leased,
        MessageState::Disabled => State::Disabled,
    }
}

fn extending(outcome: ExtendOutcome) -> Extending {
    match outcome {
        ExtendOutcome::Extended => Extending::Extended,
        ExtendOutcome::CancelRequested => Extending::CancelRequested,
        ExtendOutcome::Lost => Extending::Lost,
    }
}

fn act(action: &Action) -> Act {
    match action {
        Action::Remove => Act::Remove,
        Action::Release => Act::Release,
        Action::Retry => Act::Retry,
        Action::Postpone { delay, headers } => Act::Postpone { delay: *delay, headers: headers.clone() },
        Action::Move { to, headers } => Act::Move { to: to.clone(), headers: headers.clone() },
    }
}

/// Just under a microsecond.
const ALMOST_US: Duration = Duration::from_nanos(999);

fn on_duplicate(message: &MessageData) -> OnDuplicate {
    match message.options().on_duplicate {
        anyqueue::OnDuplicate::Replace => OnDuplicate::Replace,
        anyqueue::OnDuplicate::Earlier => OnDuplicate::Earlier,
        anyqueue::OnDuplicate::Behind => OnDuplicate::Behind,
        _ => OnDuplicate::Keep,
    }
}

fn changed(change: &Amend) -> Change {
    let (group, ungroup) = match &change.group {
        Some(Regroup::Join(group)) => (Some(group.to_string()), false),
        Some(Regroup::Leave) => (None, true),
        None => (None, false),
    };
    // A storage never sees times of day.
    let due = change.delay(std::time::UNIX_EPOCH).map(whole_us);
    Change { priority: change.priority, due, group, ungroup, disabled: change.disabled }
}

fn content(message: &MessageData) -> Content {
    let options = message.options();
    // A storage never sees times of day; a message that has one keeps it only for the comparison of both
    // ends.
    let after = |when: Option<When>| when.map(|when| when.from_now(std::time::UNIX_EPOCH));
    Content {
        body: body(message.payload()),
        headers: message.headers().clone(),
        task_id: message.task_id().map(str::to_owned),
        session_id: message.session_id().map(str::to_owned),
        priority: options.priority,
        // Even the shortest delay is a delay, and an expiry is stored in milliseconds: both are rounded up.
        delay: after(options.delay).map(|delay| whole_us(delay.saturating_add(ALMOST_US))),
        urgent_after: after(options.urgent_after).map(whole_us),
        expiry: after(options.expiry).map(|expiry| {
            let millis = expiry.as_nanos().div_ceil(1_000_000);
            Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
        }),
        group: options.group.as_deref().map(str::to_owned),
        dedup_key: options.dedup_key.as_deref().map(str::to_owned),
        max_retries: options.max_retries,
        max_duration: options.max_duration.map(whole_us),
    }
}

fn body(payload: &[u8]) -> String {
    match std::str::from_utf8(payload) {
        Ok(text) if text.len() <= SHOWN_BYTES => text.to_owned(),
        _ => {
            let mut hasher = DefaultHasher::new();
            payload.hash(&mut hasher);
            format!("{} bytes, hash {:016x}", payload.len(), hasher.finish())
        }
    }
}
