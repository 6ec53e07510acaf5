//! Who is served, and in which order. Judged only on messages that certainly could be pulled.

use std::collections::{BTreeMap, HashMap};

use anyqueue::PartitionId;

use super::book::{Book, Life, Span};
use super::rules::Rejoin;
use super::spells::{Spell, Standing};
use super::timing::{client_closed, pulls};
use super::verdict::{Verdict, refute};
use crate::clause::Clause;
use crate::history::{Asked, Call, Content, Delivered};

/// Clauses 9, 11, 25 and 30: a pull that answers fewer than it was asked for leaves nothing behind that was ready: pushed,
/// released, matured, or free by the end of a lease, within slack.
pub(super) fn ready_is_served(book: &Book<'_>) -> Verdict {
    let lines = lines(book);
    for (call, got) in pulls(book) {
        let Asked::Pull { partition, max, wait, stopped, .. } = &call.op else { continue };
        let span = call.span();
        // A pull that waited had time to see what came meanwhile.
        let by = if got.is_empty() && !wait.is_zero() {
            span.from.max(span.to.saturating_sub(book.rules.wake))
        } else {
            span.from
        };
        if got.len() >= *max || *stopped || !book.never_paused(partition, span) || client_closed(book, call) {
            continue;
        }
        if others_overfetch(book, call, partition) {
            continue;
        }
        let passed_over = lines
            .get(partition)
            .into_iter()
            .flatten()
            .find(|spell| spell.since <= by && spell.until > span.to && book.leads_group(spell, span));
        let Some(spell) = passed_over else { continue };
        let clause = match spell.standing {
            Standing::New if spell.content.delay.is_some() => Clause::Delays,
            Standing::New => Clause::ReadyAtOnce,
            Standing::Moved | Standing::Postponed | Standing::Returned => Clause::SettleActions,
        };
        refute(true, clause, &[spell.message], || {
            let expected =
                format!("#{} to be delivered, as it was ready since {:?}", spell.message, spell.since);
            (
                expected,
                format!("a pull of {max} from {:?} to {:?} answered {}", span.from, span.to, got.len()),
            )
        })?;
    }
    Ok(())
}

/// Clauses 11, 18, 25 and 30: a pull that waits ends as soon as it can be served: not with what came long before its end, be it in its
/// answer or left behind.
pub(super) fn woken_in_time(book: &Book<'_>) -> Verdict {
    for (number, life) in &book.lives {
        for spell in book.spells(*number, life) {
            check_waiters(book, &spell)?;
        }
    }
    Ok(())
}

/// Judges the pulls that waited while the message certainly was there.
fn check_waiters(book: &Book<'_>, spell: &Spell<'_>) -> Verdict {
    for (call, got) in pulls(book) {
        let Asked::Pull { partition, wait, stopped, .. } = &call.op else { continue };
        let span = call.span();
        let ready = spell.since.max(span.from);
        let late = span.to > ready.saturating_add(book.rules.wake).saturating_add(book.rules.grain);
        if got.is_empty() || wait.is_zero() || *stopped || !late || spell.place != partition {
            continue;
        }
        // Until this pull answered it, or beyond its end.
        let answered = got.iter().any(|one| one.message == spell.message);
        let there = if answered { spell.until == span.from } else { spell.until > span.to };
        let alone = !answered || spell.until_second > span.to;
        let while_ready = Span { from: ready, to: span.to };
        if !there
            || !alone
            || !book.never_paused(partition, while_ready)
            || !book.leads_group(spell, while_ready)
            || client_closed(book, call)
            || others_overfetch(book, call, partition)
        {
            continue;
        }
        let clause = if spell.standing == Standing::New && spell.content.delay.is_none() {
            Clause::PushWakes
        } else {
            Clause::AllWaitersWake
        };
        refute(true, clause, &[spell.message], || {
            let expected =
                format!("a waiting pull to end soon after {ready:?}, when #{} was ready", spell.message);
            (expected, format!("it ended at {:?}", span.to))
        })?;
    }
    Ok(())
}

/// Clauses 15 and 19: highest priority first; then what was released; then in the order of joining the line.
pub(super) fn in_order(book: &Book<'_>) -> Verdict {
    let lines = lines(book);
    for (call, got) in pulls(book) {
        let Asked::Pull { partition, .. } = &call.op else { continue };
        let Some(line) = lines.get(partition).filter(|_| !others_overfetch(book, call, partition)) else {
            continue;
        };
        let answered: HashMap<usize, &Delivered> = got.iter().map(|one| (one.message, one)).collect();
        let (mut later, mut front) = (HashMap::new(), Front::default());
        for spell in
            line.iter().filter(|spell| waited(spell, answered.contains_key(&spell.message), call.span()))
        {
            if answered.contains_key(&spell.message) {
                later.insert(spell.message, spell);
            } else {
                front.admit(spell);
            }
        }
        // From the last to the first: so each meets those that were left waiting, and those that were answered after it.
        for delivered in got.iter().rev() {
            let standing = book.hold(delivered.delivery).and_then(|hold| book.standing_before(hold));
            let overtaken = standing.and_then(|spell| front.ahead_of(book, &spell));
            if let Some(first) = overtaken {
                refute(true, Clause::Order, &[first.message, delivered.message], || told(first, delivered))?;
            }
            if let Some(spell) = later.get(&delivered.message) {
                front.admit(spell);
            }
        }
    }
    Ok(())
}

/// Of those who wait, the first of each priority and standing.
#[derive(Default)]
struct Front<'b, 'a>(BTreeMap<(u8, Standing), &'b Spell<'a>>);

impl<'b, 'a> Front<'b, 'a> {
    fn admit(&mut self, spell: &'b Spell<'a>) {
        let turn = |spell: &Spell<'_>| (spell.joined.to, spell.joined.from, spell.nth);
        let first = self.0.entry((spell.content.priority, spell.standing)).or_insert(spell);
        if turn(spell) < turn(first) {
            *first = spell;
        }
    }

    fn ahead_of(&self, book: &Book<'_>, spell: &Spell<'_>) -> Option<&'b Spell<'a>> {
        self.0.values().find(|first| goes_first(book, first, spell)).copied()
    }
}

fn told(first: &Spell<'_>, delivered: &Delivered) -> (String, String) {
    let expected = format!("#{} first, which had waited since {:?}", first.message, first.since);
    (expected, format!("#{} went ahead of it", delivered.message))
}

/// Whether another client's pull may hold, for a moment, more than it answered: what it has, this one cannot have.
fn others_overfetch(book: &Book<'_>, call: &Call, partition: &PartitionId) -> bool {
    let span = call.span();
    let holds = |other: &Call| match &other.op {
        Asked::Pull { partition: place, .. } => {
            let over = other.span().to.saturating_add(book.rules.slack);
            place == partition
                && other.client() != call.client()
                && other.span().from < span.to
                && over > span.from
        }
        _ => false,
    };
    book.rules.overfetch && book.trace.events.iter().any(holds)
}

/// Whether the pull could have had it from its first moment on, and nobody else took it.
fn waited(spell: &Spell<'_>, answered: bool, pull: Span) -> bool {
    let taken_here = answered && spell.until == pull.from && spell.until_second > pull.to;
    spell.content.group.is_none() && spell.since <= pull.from && (taken_here || spell.until > pull.to)
}

fn goes_first(book: &Book<'_>, first: &Spell<'_>, second: &Spell<'_>) -> bool {
    let (a, b) = (first.content.priority, second.content.priority);
    if book.rules.priority && a != b {
        return a > b;
    }
    let same_level = a == b && second.content.group.is_none();
    // Two that only happen to be due at the same moment may go either way; two of one call may not.
    let one_call = first.begun == second.begun && first.joined == second.joined;
    let in_turn = first.joined.before(second.joined) || (one_call && first.nth < second.nth);
    same_level
        && match (first.standing, second.standing) {
            (Standing::Returned, Standing::New) => {
                book.rules.requeue_front && (book.rules.rejoin == Rejoin::End || !second.rejoined())
            }
            (Standing::Returned, _) | (_, Standing::Returned) => false,
            _ => match (first.rejoined(), second.rejoined(), book.rules.rejoin) {
                (false, false, _) | (_, _, Rejoin::End) => book.rules.push_order && in_turn,
                (true, false, Rejoin::Front) => second.standing == Standing::New,
                _ => false,
            },
        }
}

/// All spells, by partition.
fn lines<'a>(book: &Book<'a>) -> BTreeMap<&'a PartitionId, Vec<Spell<'a>>> {
    let mut lines: BTreeMap<&PartitionId, Vec<Spell<'_>>> = BTreeMap::new();
    for (number, life) in &book.lives {
        for spell in book.spells(*number, life) {
            if spell.since < spell.until {
                lines.entry(spell.place).or_default().push(spell);
            }
        }
    }
    lines
}

/// Clause 31: of a group one member at a time is held.
pub(super) fn groups_apart(book: &Book<'_>) -> Verdict {
    if !book.rules.groups || !book.rules.exclusive {
        return Ok(());
    }
    let mut groups: BTreeMap<(&PartitionId, &str), Vec<_>> = BTreeMap::new();
    for hold in book.holds.iter().filter(|hold| !hold.place.is_dead_letters()) {
        if let Some(group) = &hold.delivered.content.group {
            groups.entry((hold.place, group)).or_default().push(hold);
        }
    }
    for ((_, group), mut holds) in groups {
        holds.sort_by_key(|hold| hold.span.to);
        for (at, hold) in holds.iter().enumerate() {
            let others =
                holds.iter().skip(at + 1).filter(|other| other.delivered.message != hold.delivered.message);
            for other in others {
                let overlap = hold.sure_until.min(other.sure_until).saturating_sub(other.span.to);
                let about = [hold.delivered.message, other.delivered.message];
                refute(overlap > book.rules.grain, Clause::Groups, &about, || {
                    let expected = format!("one member of {group} at a time");
                    (expected, format!("two were held at once, for at least {overlap:?}"))
                })?;
            }
        }
    }
    Ok(())
}

/// Clause 31: no member of a group overtakes one that joined it earlier and is still there.
pub(super) fn groups_in_order(book: &Book<'_>) -> Verdict {
    if !book.rules.groups {
        return Ok(());
    }
    for hold in book.holds.iter().filter(|hold| !hold.place.is_dead_letters()) {
        let Some(group) = &hold.delivered.content.group else { continue };
        let Some(joined) = book.life_of(hold).and_then(|life| joined(book, life, hold.place)) else {
            continue;
        };
        let ahead = book.lives.iter().find(|(number, life)| {
            **number != hold.delivered.message
                && life.content().and_then(|content: &Content| content.group.as_ref()) == Some(group)
                && self::joined(book, life, hold.place).is_some_and(|first| earlier(&first, &joined))
                && book.certainly_in(life, hold.place, hold.span)
        });
        let Some((first, _)) = ahead else { continue };
        refute(true, Clause::Groups, &[*first, hold.delivered.message], || {
            let expected = format!("#{first} first, which is ahead in {group}");
            (expected, format!("#{} was delivered", hold.delivered.message))
        })?;
    }
    Ok(())
}

/// A message's coming into its group.
struct Joined {
    /// The push.
    pushed: Span,
    /// The end of its delay.
    at: Span,
    /// Its place in that push.
    nth: usize,
}

/// When a message certainly joined its group, if it came by its one push and was never moved.
fn joined(book: &Book<'_>, life: &Life<'_>, place: &PartitionId) -> Option<Joined> {
    let [arrival] = life.arrivals.as_slice() else { return None };
    let (pushed, nth) = arrival.pushed?;
    let delay = pushed.content.delay.unwrap_or_default();
    let late = if delay.is_zero() { delay } else { book.rules.slack + book.rules.grain };
    let span = arrival.span.later(delay);
    let at = Span { from: span.from.saturating_sub(late), to: span.to.saturating_add(late) };
    (arrival.certain && arrival.place == place).then_some(Joined { pushed: arrival.span, at, nth })
}

/// Two that only happen to be due at the same moment may go either way; two of one call may not.
fn earlier(a: &Joined, b: &Joined) -> bool {
    a.at.before(b.at) || (a.pushed == b.pushed && a.at == b.at && a.nth < b.nth)
}
