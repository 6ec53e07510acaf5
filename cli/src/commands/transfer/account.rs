//! What became of the messages of a move.

use std::fmt::Write as _;

use anyqueue::Queue;
use serde::Serialize;

use super::run::Route;
use crate::failure::Result;
use crate::output::{Output, count};

/// The account of one queue. Each message that was pulled is in exactly one of the first five counts.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Account {
    queue: String,
    dead_letters: bool,
    /// Copied, and removed from the source.
    pub(crate) moved: u64,
    /// Found at the target already, and removed from the source.
    pub(crate) already_there: u64,
    /// Refused by the target, and left at the source.
    pub(crate) refused: u64,
    /// Given back to the source, not copied as far as is known.
    pub(crate) given_back: u64,
    /// Copied, but not removed from the source, as far as is known: somebody else took it there meanwhile, or the source did not
    /// answer. It may be worked twice.
    pub(crate) in_both: u64,
    /// What the source has left, as far as it counts.
    left: Left,
}

#[derive(Debug, Default, Serialize)]
struct Left {
    ready: Option<u64>,
    delayed: Option<u64>,
    leased: Option<u64>,
}

impl Account {
    pub(crate) fn new(route: &Route) -> Self {
        let (queue, dead_letters) = (route.from.name().to_owned(), route.from.is_dead_letters());
        Self { queue, dead_letters, ..Self::default() }
    }

    /// Looks at what the source has left. That it cannot be counted is no failure of the move.
    pub(crate) async fn count_left(&mut self, source: &Queue, route: &Route) {
        let Ok(counts) = source.counts(&route.from).await else { return };
        self.left = if self.dead_letters {
            Left { ready: counts.dead, ..Left::default() }
        } else {
            Left { ready: counts.ready, delayed: counts.delayed, leased: counts.leased }
        };
    }

    /// Whether nothing that was seen is left.
    pub(crate) fn is_complete(&self) -> bool {
        self.refused == 0 && self.given_back == 0 && self.in_both == 0
    }

    pub(crate) fn show(&self, output: Output) -> Result {
        let what = if self.dead_letters { " (dead letters)" } else { "" };
        let mut text =
            format!("{}{what}: moved {}, already there {}", self.queue, self.moved, self.already_there);
        for (count, word) in
            [(self.refused, "refused"), (self.given_back, "given back"), (self.in_both, "in both places")]
        {
            if count > 0 {
                let _ = write!(text, ", {word} {count}");
            }
        }
        let _ = write!(text, "; left: ready {}", count(self.left.ready));
        if !self.dead_letters {
            let _ =
                write!(text, ", delayed {}, leased {}", count(self.left.delayed), count(self.left.leased));
        }
        output.result(&text, self)
    }
}
