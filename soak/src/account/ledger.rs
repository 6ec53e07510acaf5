//! Whether each task is in exactly one place at the end, and ended as its consumer said.

use std::collections::HashMap;
use std::sync::Arc;

use anyqueue::{EndState, MessageId};
use serde_json::{Value, json};

use super::life::{Life, Saying};

/// For this many of the tasks that break a rule, the history is printed.
const EXAMPLES: usize = 5;

/// A task that has ended, as the ledger lists it.
#[derive(Clone, Debug)]
pub(crate) struct EndedTask {
    pub(crate) id: MessageId,
    pub(crate) state: EndState,
    /// Who ended it; where consumers settle themselves, the number of what they said.
    pub(crate) worker: Option<Arc<str>>,
}

/// All tasks that exist at the end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    pub(crate) live: Vec<MessageId>,
    pub(crate) dead: Vec<MessageId>,
    pub(crate) ended: Vec<EndedTask>,
}

/// The places of one task, and how often it is in each.
#[derive(Clone, Debug, Default)]
struct Places<'a> {
    live: u32,
    dead: u32,
    ended: Vec<&'a EndedTask>,
}

impl Places<'_> {
    fn count(&self) -> usize {
        self.ended.len() + (self.live + self.dead) as usize
    }
}

impl Found {
    fn places(&self) -> HashMap<MessageId, Places<'_>> {
        let mut places: HashMap<MessageId, Places<'_>> = HashMap::new();
        for id in &self.live {
            places.entry(*id).or_default().live += 1;
        }
        for id in &self.dead {
            places.entry(*id).or_default().dead += 1;
        }
        for task in &self.ended {
            places.entry(task.id).or_default().ended.push(task);
        }
        places
    }

    pub(crate) fn totals(&self) -> Value {
        let ended = |state| self.ended.iter().filter(|task| task.state == state).count();
        let by_state: HashMap<_, _> =
            EndState::ALL.into_iter().map(|state| (state.as_str(), ended(state))).collect();
        let places = self.places();
        let twice = places.values().filter(|places| places.ended.len() > 1).count();
        let both = places.values().filter(|it| !it.ended.is_empty() && it.dead > 0).count();
        json!({
            "live": self.live.len(),
            "dead": self.dead.len(),
            "ended": by_state,
            "ended_twice": twice,
            "ended_and_dead": both,
        })
    }
}

/// How ends are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keeping {
    /// Ends are stored in one step with the settlement; if not, a consumer that has lost a task may leave an
    /// end of it.
    pub(crate) is_atomic: bool,
    /// Settlements are confirmed by the server; if not, a task that was settled may come again, run again,
    /// and die.
    pub(crate) is_confirmed: bool,
}

/// Returns the violations, as sentences.
pub(super) fn violations(lives: &HashMap<MessageId, Life>, found: &Found, keeping: Keeping) -> Vec<String> {
    let (places, nowhere, nobody) = (found.places(), Places::default(), Life::default());
    let of = |id: &MessageId| places.get(id).unwrap_or(&nowhere);
    let pushed = |wrong: &dyn Fn(&Life, &Places<'_>) -> bool| {
        lives.iter().filter(|(id, life)| wrong(life, of(id))).map(|(id, _)| *id).collect::<Vec<_>>()
    };
    let there = |wrong: &dyn Fn(&Life, &Places<'_>) -> bool| {
        let there = places.iter().filter(|(id, places)| wrong(lives.get(*id).unwrap_or(&nobody), places));
        there.map(|(id, _)| *id).collect::<Vec<_>>()
    };
    let rules: [(&str, Vec<MessageId>); 5] = [
        (
            "acknowledged tasks neither ended nor live nor are dead",
            pushed(&|life, places| life.acknowledged && places.count() == 0),
        ),
        ("tasks are there that nobody pushed", there(&|life, _| !life.attempted)),
        (
            "tasks are in two places",
            there(&|life, places| {
                !life.doubtful && places.count() > 1 && !may_be_left_behind(life, places, keeping)
            }),
        ),
        (
            "tasks ended otherwise than was said",
            there(&|life, places| {
                let is_wrongly_dead = places.dead > 0 && !may_die(life);
                is_wrongly_dead || !places.ended.iter().all(|task| is_as_said(life, task))
            }),
        ),
        (
            "ends that were confirmed are not those that are kept",
            there(&|life, places| {
                !life.doubtful && !places.ended.iter().all(|task| is_kept(life, task, keeping))
            }),
        ),
    ];
    let broken = rules.into_iter().filter(|(_, ids)| !ids.is_empty());
    let tell = |(what, ids): (&str, Vec<MessageId>)| {
        for id in ids.iter().take(EXAMPLES) {
            eprintln!("{what}: {id}: {:?} {:?}", lives.get(id).unwrap_or(&nobody), of(id));
        }
        format!("{} {what}", ids.len())
    };
    broken.map(tell).collect()
}

fn number(task: &EndedTask) -> Option<u64> {
    task.worker.as_deref()?.parse().ok()
}

/// Returns whether somebody said that the task ends like this. Nobody can have said so of a task that was not
/// due yet.
fn is_as_said(life: &Life, task: &EndedTask) -> bool {
    if life.is_parked {
        return false;
    }
    if let Some(bound) = life.bound {
        return bound == task.state && bound != EndState::Failed;
    }
    number(task).and_then(|number| life.said(number)).is_some_and(|saying| saying.state == task.state)
}

fn may_die(life: &Life) -> bool {
    life.bound.is_none_or(|bound| bound == EndState::Failed)
}

/// Returns whether no end was confirmed other than the one that is kept. Beside a queue, the greater end is
/// kept, and a queue may count a later delivery lower than an earlier one, as RabbitMQ does for another
/// handle.
fn is_kept(life: &Life, task: &EndedTask, keeping: Keeping) -> bool {
    let mut confirmed = life.said.iter().filter(|saying| saying.is_confirmed).peekable();
    if confirmed.peek().is_none() {
        return true;
    }
    let Some(kept) = number(task).and_then(|number| life.said(number)) else { return false };
    let rank = |saying: &Saying| (saying.delivery, saying.state.code());
    kept.is_confirmed || (!keeping.is_atomic && confirmed.all(|other| rank(kept) >= rank(other)))
}

/// Returns whether the task may be in two places: because of an end that its consumer was never told is kept,
/// or whose settlement may have been lost all the same.
fn may_be_left_behind(life: &Life, places: &Places<'_>, keeping: Keeping) -> bool {
    let (others, [end]) = (places.live + places.dead, places.ended.as_slice()) else { return false };
    let is_confirmed =
        number(end).and_then(|number| life.said(number)).is_some_and(|saying| saying.is_confirmed);
    !keeping.is_atomic && others == 1 && !(is_confirmed && keeping.is_confirmed)
}
