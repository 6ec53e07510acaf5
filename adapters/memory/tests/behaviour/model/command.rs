//! What is done at random, to the backend and to the model.

use anyqueue::Amend;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::fixture::secs;

#[derive(Clone, Debug)]
pub(super) enum Command {
    Push { dead: bool, priority: u8, group: Option<u8>, key: Option<u8>, delay: u64, urgent: Option<u64> },
    Amend(Index, Amend),
    PushAgain(Index),
    Pull(Pull),
    Settle(Index, Fate),
    Extend(Index, u64),
    Delete(bool, Index),
    Cancel(bool, Index),
    Purge { dead: bool },
    Pause { dead: bool, paused: bool },
    Advance(u64),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Pull {
    pub(super) dead: bool,
    pub(super) max: usize,
    /// Of one group at once.
    pub(super) members: usize,
    pub(super) lease: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    Remove,
    Release,
    Retry,
    Postpone(u64),
    Move { dead: bool },
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        3 => Just(Fate::Remove),
        2 => Just(Fate::Release),
        1 => Just(Fate::Retry),
        2 => (0..4_u64).prop_map(Fate::Postpone),
        2 => any::<bool>().prop_map(|dead| Fate::Move { dead }),
    ]
}

/// Whether it is about the dead letters: sometimes.
fn dead() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.2)
}

fn amendment() -> impl Strategy<Value = Amend> {
    let priority = prop::option::weighted(0.3, 0..10_u8);
    let due = prop::option::weighted(0.4, 0..4_u64);
    let group = prop::option::weighted(0.3, prop::option::of(0..2_u8));
    let disabled = prop::option::weighted(0.5, any::<bool>());
    (priority, due, group, disabled).prop_map(|(priority, due, group, disabled)| {
        let mut change = Amend::new();
        (change.priority, change.disabled) = (priority, disabled);
        change = due.map_or(change.clone(), |due| change.due_in(secs(due)));
        match group {
            Some(Some(group)) => change.with_group(format!("g{group}")),
            Some(None) => change.without_group(),
            None => change,
        }
    })
}

fn pull() -> impl Strategy<Value = Pull> {
    let members = prop_oneof![1 => Just(1_usize), 1 => 2..5_usize];
    (dead(), 1..5_usize, members, 1..6_u64).prop_map(|(dead, max, members, lease)| Pull {
        dead,
        max,
        members,
        lease,
    })
}

pub(super) fn command() -> impl Strategy<Value = Command> {
    let group = prop::option::weighted(0.6, 0..2_u8);
    let key = prop::option::weighted(0.3, 0..3_u8);
    let delay = prop_oneof![3 => Just(0), 1 => 1..5_u64];
    let urgent = prop::option::weighted(0.2, 0..5_u64);
    let push = (prop::bool::weighted(0.1), 0..3_u8, group, key, delay, urgent).prop_map(
        |(dead, priority, group, key, delay, urgent)| Command::Push {
            dead,
            priority,
            group,
            key,
            delay,
            urgent,
        },
    );
    prop_oneof![
        8 => push,
        1 => any::<Index>().prop_map(Command::PushAgain),
        4 => (any::<Index>(), amendment()).prop_map(|(which, change)| Command::Amend(which, change)),
        6 => pull().prop_map(Command::Pull),
        8 => (any::<Index>(), fate()).prop_map(|(which, fate)| Command::Settle(which, fate)),
        2 => (any::<Index>(), 1..6_u64).prop_map(|(which, seconds)| Command::Extend(which, seconds)),
        1 => (dead(), any::<Index>()).prop_map(|(dead, which)| Command::Delete(dead, which)),
        1 => (dead(), any::<Index>()).prop_map(|(dead, which)| Command::Cancel(dead, which)),
        1 => (dead(), prop::bool::weighted(0.3)).prop_map(|(dead, paused)| Command::Pause { dead, paused }),
        4 => (0..4_u64).prop_map(Command::Advance),
        // Rare: it leaves little to look at.
        1 => prop::bool::weighted(0.5).prop_map(|dead| Command::Purge { dead }),
    ]
}
