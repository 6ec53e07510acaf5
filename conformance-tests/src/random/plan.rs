//! What is to be done, as data: steps of several processes. What a step works on is expressed symbolically
//! ("the second delivery that the process holds"), so that a plan still means something when steps are taken
//! out of it.

use std::time::Duration;

use anyqueue::OnDuplicate;

/// A plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) processes: usize,
    /// The steps; each process carries out its own, in this order.
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) process: usize,
    pub(crate) act: Act,
}

/// A partition of the plan, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) number: usize,
    pub(crate) dead: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Act {
    Push {
        place: usize,
        messages: Vec<Message>,
    },
    /// Pushes a message again that this process pushed before.
    PushAgain {
        nth: usize,
    },
    Pull(Pull),
    Settle(Vec<Settle>),
    /// Settles and pulls in one call.
    Exchange(Vec<Settle>, Pull),
    Extend {
        whose: Whose,
        nth: usize,
        duration: Duration,
    },
    /// The message that is the `nth` of all that were pushed so far.
    Delete {
        place: Place,
        nth: usize,
    },
    Cancel {
        place: Place,
        nth: usize,
    },
    /// Amends these of all messages that were pushed so far, wherever they are.
    Amend {
        place: usize,
        nths: Vec<usize>,
        change: Change,
    },
    Purge {
        place: Place,
        limit: usize,
    },
    Counts {
        place: usize,
    },
    Browse {
        place: Place,
    },
    Pause {
        place: usize,
        paused: bool,
    },
    /// Closes the client properly, and opens another.
    Close,
    /// Drops the client with whatever it holds, and opens another.
    Crash,
    Sleep(Duration),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Message {
    pub(crate) priority: u8,
    pub(crate) delay: Option<Duration>,
    pub(crate) group: Option<u8>,
    pub(crate) key: Option<u8>,
    pub(crate) on_duplicate: OnDuplicate,
    pub(crate) urgent_after: Option<Duration>,
    pub(crate) payload: Payload,
    pub(crate) headers: bool,
    /// Whether the message has every field that decides nothing here: session, retries, duration, expiry.
    pub(crate) fields: bool,
}

/// One thing to amend.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Priority(u8),
    Due(Duration),
    Join(u8),
    Leave,
    Disable,
    Enable,
}

/// Payloads that have been known to get corrupted on the way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Payload {
    #[default]
    Plain,
    Padded,
    WithNul,
    NoUtf8,
    Long,
}

#[derive(Clone, Debug)]
pub(crate) struct Pull {
    pub(crate) place: Place,
    pub(crate) max: usize,
    pub(crate) wait: Duration,
    pub(crate) lease: Duration,
    /// How many members of one group it may return.
    pub(crate) group_members: usize,
    pub(crate) end: End,
}

/// What ends a pull early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    None,
    /// The pull is asked to stop.
    Stop(Duration),
    /// The pull's future is dropped.
    Drop(Duration),
}

#[derive(Clone, Debug)]
pub(crate) struct Settle {
    pub(crate) whose: Whose,
    pub(crate) nth: usize,
    pub(crate) fate: Fate,
    /// The settlement's successors, and the partitions that they go to.
    pub(crate) then: Vec<(usize, Message)>,
}

/// Which of a process's deliveries are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Those that the process has not settled.
    Held,
    /// Those that the process has settled: what it does under their leases must change nothing.
    Settled,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    Remove,
    Release,
    Retry,
    Postpone {
        delay: Duration,
        headers: bool,
    },
    Move {
        to: Place,
        headers: bool,
    },
    /// Moves to the dead letters of the current partition, or from there back home.
    Bury {
        headers: bool,
    },
}

impl Act {
    /// Returns the names that histories use; `None` for steps that no history shows.
    fn kinds(&self) -> Vec<&'static str> {
        match self {
            Self::Push { .. } => vec!["push"],
            Self::Pull(_) => vec!["pull"],
            Self::Settle(items) => items.iter().flat_map(Settle::kinds).collect(),
            Self::Exchange(items, _) => items.iter().flat_map(Settle::kinds).chain(["pull"]).collect(),
            Self::Extend { .. } => vec!["extend"],
            Self::Delete { .. } => vec!["delete"],
            Self::Cancel { .. } => vec!["cancel"],
            Self::Amend { .. } => vec!["amend"],
            Self::Purge { .. } => vec!["purge"],
            Self::Counts { .. } => vec!["counts"],
            Self::Browse { .. } => vec!["browse"],
            Self::Pause { paused: true, .. } => vec!["pause"],
            Self::Pause { paused: false, .. } => vec!["resume"],
            Self::Close => vec!["close"],
            Self::Crash => vec!["crash"],
            Self::PushAgain { .. } | Self::Sleep(_) => vec![],
        }
    }
}

impl Settle {
    fn kinds(&self) -> impl Iterator<Item = &'static str> + use<> {
        let then = (!self.then.is_empty()).then_some("successors");
        std::iter::once(self.fate.kind()).chain(then)
    }
}

impl Fate {
    fn kind(self) -> &'static str {
        match self {
            Self::Remove => "remove",
            Self::Release => "release",
            Self::Retry => "retry",
            Self::Postpone { .. } => "postpone",
            Self::Move { .. } | Self::Bury { .. } => "move",
        }
    }
}

impl Plan {
    /// Returns the kinds of operation that occur so often that it would be strange if none succeeded.
    pub(crate) fn kinds(&self, often: usize) -> Vec<String> {
        let mut times = std::collections::BTreeMap::<_, usize>::new();
        for kind in self.steps.iter().flat_map(|step| step.act.kinds()) {
            *times.entry(kind).or_default() += 1;
        }
        times.into_iter().filter(|(_, times)| *times >= often).map(|(kind, _)| kind.to_owned()).collect()
    }
}
