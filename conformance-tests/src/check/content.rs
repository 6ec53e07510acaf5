//! Answers match what was asked, and deliveries match what was pushed.

use super::amended::with_amendments;
use super::timeline::{Hold, Life, Timeline};
use super::verdict::{Verdict, refute};
use crate::clause::Clause;
use crate::history::{Answer, Asked, Content, OnDuplicate, Push};

/// Clauses 2 and 20: a batch is answered item by item, and each answer belongs to its own item.
pub(super) fn one_answer_each(timeline: &Timeline<'_>) -> Verdict {
    let missing = |clause, message: usize, missing: bool| {
        refute(missing, clause, &[message], || ("one answer per item".to_owned(), "fewer".to_owned()))
    };
    for call in &timeline.trace.events {
        match &call.op {
            Asked::Push { items, .. } => {
                for item in items {
                    missing(Clause::PushResults, item.message, item.answer == Answer::Missing)?;
                    let other = match item.answer {
                        Answer::Ok(Push::StoredAs(other)) => Some(other),
                        _ => None,
                    };
                    refute(other.is_some(), Clause::PushResults, &[item.message], || {
                        let seen = format!("the id of #{}", other.unwrap_or_default());
                        (format!("the id of #{} at its place", item.message), seen)
                    })?;
                }
            }
            Asked::Settle { items } => {
                for item in items {
                    missing(Clause::SettleOutcomes, item.message, item.answer == Answer::Missing)?;
                }
            }
            Asked::Extend { items } => {
                for item in items {
                    missing(Clause::Extend, item.message, item.answer == Answer::Missing)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Clauses 5 and 16: a delivery is of a message that was pushed before, and comes from the partition that it
/// was pushed or moved to.
pub(super) fn no_ghosts(timeline: &Timeline<'_>) -> Verdict {
    for hold in &timeline.holds {
        let about = [hold.delivered.message];
        let known = timeline.life_of(hold);
        let begun = |life: &&Life<'_>| life.pushes.iter().any(|(call, _)| call.invoked < hold.span.to);
        let Some(life) = known.filter(begun) else {
            return refute(true, Clause::ContentIntact, &about, || {
                let seen = format!("{:?}, which nobody had pushed", hold.delivered.content.body);
                ("only messages that were pushed".to_owned(), seen)
            });
        };
        let here = |place: &anyqueue::PartitionId| place == hold.place;
        let elsewhere = !life.arrivals.iter().any(|arrival| here(arrival.place));
        let meant = life.pushes.iter().any(|(call, _)| match &call.op {
            Asked::Push { partition, .. } => here(partition),
            Asked::Settle { items } => items
                .iter()
                .flat_map(|item| &item.then)
                .any(|it| it.pushed.message == hold.delivered.message && here(&it.partition)),
            _ => false,
        });
        refute(elsewhere && !meant, Clause::PartitionsApart, &about, || {
            let places: Vec<_> = life.arrivals.iter().map(|arrival| arrival.place).collect();
            (format!("it in one of {places:?}"), format!("it came out of {}", hold.place))
        })?;
    }
    Ok(())
}

/// Clause 5: payload, headers and options come back as they were pushed, unless a settlement replaced the headers.
pub(super) fn content_intact(timeline: &Timeline<'_>) -> Verdict {
    for hold in &timeline.holds {
        let Some((life, pushed)) = timeline.life_of(hold).and_then(|life| Some((life, life.content()?)))
        else {
            continue;
        };
        let expected = expected(life, pushed, hold);
        let about = [hold.delivered.message];
        let got = &hold.delivered.content;
        let with_settled_headers = life.headers.contains(&&got.headers);
        let replaced = || {
            timeline.replacements(hold, pushed).any(|newer| {
                let headers = if with_settled_headers { &got.headers } else { &newer.headers };
                Content { headers: headers.clone(), ..replaced_by(&expected, newer) } == *got
            })
        };
        refute(expected != hold.delivered.content && !replaced(), Clause::ContentIntact, &about, || {
            (format!("{expected:?}, as it was pushed"), format!("{:?}", hold.delivered.content))
        })?;
    }
    Ok(())
}

/// Returns what was pushed, with the fields that may differ taken from the delivery.
fn expected(life: &Life<'_>, pushed: &Content, hold: &Hold<'_>) -> Content {
    let got = &hold.delivered.content;
    let mut expected = pushed.clone();
    expected.delay = got.delay; // consumed by the delay itself; adapters need not keep it
    expected.urgent_after = got.urgent_after; // it is about the waiting
    if life.departures.iter().any(|gone| gone.moved) {
        expected.dedup_key.clone_from(&got.dedup_key); // freed by the move
    }
    if life.headers.contains(&&got.headers) {
        expected.headers.clone_from(&got.headers);
    }
    with_amendments(expected, life, hold)
}

/// Returns the same with the content of another push, except for headers.
fn replaced_by(expected: &Content, newer: &Content) -> Content {
    Content {
        body: newer.body.clone(),
        task_id: newer.task_id.clone(),
        session_id: newer.session_id.clone(),
        ..expected.clone()
    }
}

impl Timeline<'_> {
    /// Returns the contents that pushes with its deduplication key may have given a message before it was
    /// delivered.
    fn replacements<'b>(
        &'b self,
        hold: &'b Hold<'_>,
        first: &'b Content,
    ) -> impl Iterator<Item = &'b Content> {
        let message = hold.delivered.message;
        let pushes = self.lives.values().flat_map(|life| &life.pushes);
        pushes
            .filter(move |(call, pushed)| {
                let may_replace = match pushed.answer {
                    Answer::Ok(Push::Replaced(other)) => other == message,
                    Answer::Unknown | Answer::Missing => {
                        matches!(pushed.on_duplicate, OnDuplicate::Replace | OnDuplicate::Earlier)
                    }
                    _ => false,
                };
                may_replace
                    && call.invoked < hold.span.to
                    && first.dedup_key.is_some()
                    && first.dedup_key == pushed.content.dedup_key
            })
            .map(|(_, pushed)| &pushed.content)
    }
}

/// Clause 16: a lease has the id and the partition of its message.
pub(super) fn labels_agree(timeline: &Timeline<'_>) -> Verdict {
    for hold in &timeline.holds {
        let wrong = hold.delivered.mislabelled.as_ref();
        refute(wrong.is_some(), Clause::PartitionsApart, &[hold.delivered.message], || {
            let expected = format!("a lease on the message, in {}, which was pulled", hold.place);
            (expected, wrong.cloned().unwrap_or_default())
        })?;
    }
    Ok(())
}
