//! Calls, in the words of a failure's history.

use std::fmt::Write as _;

use anyqueue::adapter::{Action, RawDelivery};
use anyqueue::{MessageId, Result};

use super::{Inner, Op};

impl Inner {
    pub(super) fn describe(&self, op: &Op, about: &[MessageId]) -> String {
        let named = |id: &MessageId| about.is_empty() || about.contains(id);
        match op {
            Op::Push { partition, ids, outcomes } => {
                format!("push to {partition}: {}", self.pairs(ids, outcomes, named, Self::pushed))
            }
            Op::Pull { partition, max, wait, lease, group_members, outcome, .. } => {
                let whole = match group_members {
                    1 => String::new(),
                    members => format!(" up to {members} of a group"),
                };
                let head = format!("pull {partition} max {max}{whole} wait {wait:?} lease {lease:?}");
                match outcome {
                    Ok(got) => format!("{head} → {}", self.deliveries(got, named)),
                    Err(error) => format!("{head} → {error}"),
                }
            }
            Op::Settle { settlements, outcomes } => format!(
                "settle {}",
                self.pairs(
                    settlements,
                    outcomes,
                    |s| named(&s.lease.id) || s.then.iter().any(|it| named(&it.message.id())),
                    |inner, s| {
                        let then: Vec<_> = s
                            .then
                            .iter()
                            .map(|it| format!("{} in {}", inner.pushed(&it.message.id()), it.partition))
                            .collect();
                        let then = if then.is_empty() {
                            String::new()
                        } else {
                            format!(", then {}", then.join(" and "))
                        };
                        format!("{} {}{then}", inner.label(s.lease.id), action_name(&s.action))
                    }
                )
            ),
            Op::Extend { extensions, outcomes } => format!(
                "extend {}",
                self.pairs(
                    extensions,
                    outcomes,
                    |e| named(&e.lease.id),
                    |inner, e| { format!("{} to {:?}", inner.label(e.lease.id), e.duration) }
                )
            ),
            Op::Delete { partition, ids, outcomes } => {
                format!(
                    "delete from {partition}: {}",
                    self.pairs(ids, outcomes, named, |_, id| self.label(*id))
                )
            }
            Op::Cancel { partition, ids, outcomes } => {
                format!(
                    "cancel in {partition}: {}",
                    self.pairs(ids, outcomes, named, |_, id| self.label(*id))
                )
            }
            Op::Amend { partition, ids, change, outcomes } => {
                let pairs = self.pairs(ids, outcomes, named, |_, id| self.label(*id));
                format!("amend in {partition} by {change:?}: {pairs}")
            }
            Op::Purge { partition, limit, outcome } => {
                format!("purge up to {limit} of {partition} → {outcome:?}")
            }
            Op::Counts { partition, outcome } => format!("count {partition} → {outcome:?}"),
            Op::Browse { partition, outcome, .. } => {
                let shown = outcome.iter().flatten().filter(|shown| named(&shown.message.id()));
                let shown =
                    shown.map(|shown| format!("{} {:?}", self.label(shown.message.id()), shown.state));
                format!("browse {partition} → {}", shown.collect::<Vec<_>>().join(", "))
            }
            Op::Pause { partition, paused, outcome } => {
                let verb = if *paused { "pause" } else { "resume" };
                format!("{verb} {partition} → {outcome:?}")
            }
            Op::Close => "close".to_owned(),
            Op::Crash => "crash".to_owned(),
            Op::Drained => "drained".to_owned(),
            Op::ChildTook { id, lease } => format!("took {} under a lease of {lease:?}", self.label(*id)),
            Op::ChildRemoved { id } => format!("removed {}", self.label(*id)),
            Op::Note(text) => text.clone(),
        }
    }

    fn pairs<I, O: std::fmt::Debug>(
        &self,
        items: &[I],
        outcomes: &[Result<O>],
        named: impl Fn(&I) -> bool,
        show: impl Fn(&Self, &I) -> String,
    ) -> String {
        let mut text = String::new();
        for (position, item) in items.iter().enumerate().filter(|(_, item)| named(item)) {
            let separator = if text.is_empty() { "" } else { ", " };
            let _ = write!(text, "{separator}{} → ", show(self, item));
            let _ = match outcomes.get(position) {
                Some(Ok(outcome)) => write!(text, "{}", outcome_name(outcome)),
                Some(Err(error)) => write!(text, "{error}"),
                None => write!(text, "…"),
            };
        }
        if items.is_empty() { "nothing".to_owned() } else { text }
    }

    fn deliveries(&self, got: &[RawDelivery], named: impl Fn(&MessageId) -> bool) -> String {
        if got.is_empty() {
            return "nothing".to_owned();
        }
        let shown: Vec<String> = got
            .iter()
            .filter(|delivery| named(&delivery.lease.id))
            .map(|delivery| {
                let count = delivery.delivery_count.map(|count| format!(" (delivery {count})"));
                format!("{}{}", self.label(delivery.lease.id), count.unwrap_or_default())
            })
            .collect();
        shown.join(", ")
    }
}

/// `Stored(MessageId(…))` would repeat the id: the variant's name is enough.
fn outcome_name(outcome: &impl std::fmt::Debug) -> String {
    let text = format!("{outcome:?}");
    text.split_once('(').map_or(text.clone(), |(name, _)| name.to_owned())
}

fn action_name(action: &Action) -> String {
    match action {
        Action::Remove => "remove".to_owned(),
        Action::Release => "release".to_owned(),
        Action::Retry => "retry".to_owned(),
        Action::Postpone { delay, .. } => format!("postpone by {delay:?}"),
        Action::Move { to, .. } => format!("move to {to}"),
    }
}
