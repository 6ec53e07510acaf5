//! What happened to the messages of a move.

use std::collections::HashSet;
use std::fmt::Write as _;

use anyqueue::{Error, ErrorKind, MessageId, Queue, RetryClass};
use serde::Serialize;

use super::route::Route;
use crate::failure::{Failure, Result};
use crate::output::{Output, count};

/// The account of one queue. Each message that was seen is in exactly one of `moved`, `already_there`,
/// `refused`, `released`, `unknown` and `in_both`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Account {
    queue: String,
    dead_letters: bool,
    /// Copied to the target, and removed from the source.
    pub(crate) moved: u64,
    /// How many of these the source had delivered before, perhaps to a move that was killed after it had
    /// copied them: if they have been processed at the target since, they are there twice.
    pub(crate) delivered_before: u64,
    /// Already at the target, and removed from the source.
    pub(crate) already_there: u64,
    /// Refused by the target, and left at the source.
    pub(crate) refused: u64,
    /// Not copied, and released to the source.
    pub(crate) released: u64,
    /// Left at the source, and perhaps copied: the target did not reply. Where ids are unique, the next run
    /// finds out.
    pub(crate) unknown: u64,
    /// Copied, but, as far as is known, not removed from the source: a consumer took the message there
    /// meanwhile, or the source did not reply. It may be processed twice.
    pub(crate) in_both: u64,
    /// What is left at the source, if it counts that.
    left: Left,
    /// The refused messages: a delayed one is tried more than once.
    #[serde(skip)]
    refusals: HashSet<MessageId>,
}

/// Refused messages are remembered and held, so that they are not pulled again; beyond this many, the move
/// ends.
const MOST_REFUSED: usize = 2000;
/// How many refusals are reported one by one.
const SHOWN_REFUSALS: usize = 10;

#[derive(Debug, Default, Serialize)]
struct Left {
    ready: Option<u64>,
    delayed: Option<u64>,
    leased: Option<u64>,
    /// Disabled messages do not move: nobody gets them.
    disabled: Option<u64>,
}

impl Account {
    pub(crate) fn new(route: &Route) -> Self {
        let (queue, dead_letters) = (route.from.name().to_owned(), route.from.is_dead_letters());
        Self { queue, dead_letters, ..Self::default() }
    }

    /// Counts a refusal, and reports the first few.
    pub(crate) fn refuse(&mut self, id: MessageId, why: &str, output: Output) {
        if self.refusals.insert(id) {
            self.refused += 1;
            if self.refusals.len() <= SHOWN_REFUSALS {
                output.warn(&format!("{id} stays: {why}"));
            }
        }
    }

    /// Counts copies whose push failed, or got no reply.
    pub(crate) fn fail(&mut self, copies: u64, error: &Error) {
        // A push that is safe to repeat may still have stored the message.
        let has_no_reply = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TimedOut);
        if has_no_reply || error.retry() == RetryClass::MayDuplicate {
            self.unknown += copies;
        } else {
            self.released += copies;
        }
    }

    /// Returns an error if so many messages were refused that continuing makes no sense.
    pub(crate) fn not_too_many_refusals(&self) -> Result {
        if self.refusals.len() < MOST_REFUSED {
            return Ok(());
        }
        let text = format!("the target refused {} messages: fix that first, or see --without", self.refused);
        Err(Failure::Failed(text))
    }

    /// Counts what is left at the source. If counting fails, the move has not failed.
    pub(crate) async fn count_left(&mut self, source: &Queue, route: &Route) {
        let Ok(counts) = source.counts(&route.from).await else { return };
        self.left = if self.dead_letters {
            Left { ready: counts.dead, ..Left::default() }
        } else {
            Left {
                ready: counts.ready,
                delayed: counts.delayed,
                leased: counts.leased,
                disabled: counts.disabled,
            }
        };
    }

    /// Whether nothing is left, according to the source; counts that may be old are ignored.
    pub(crate) fn is_complete(&self, source: &Queue) -> bool {
        let left = [self.left.ready, self.left.delayed, self.left.leased, self.left.disabled]
            .into_iter()
            .flatten()
            .sum::<u64>();
        let is_left = left > 0 && source.capabilities().inspect.staleness.is_zero();
        self.refused + self.released + self.unknown + self.in_both == 0 && !is_left
    }

    /// Whether the source counts everything that could be left.
    pub(crate) fn is_known(&self) -> bool {
        self.dead_letters || (self.left.delayed.is_some() && self.left.leased.is_some())
    }

    pub(crate) fn show(&self, output: Output) -> Result {
        let what = if self.dead_letters { " (dead letters)" } else { "" };
        let mut text =
            format!("{}{what}: moved {}, already there {}", self.queue, self.moved, self.already_there);
        for (count, word) in [
            (self.delivered_before, "delivered before"),
            (self.refused, "refused"),
            (self.released, "released"),
            (self.unknown, "unknown"),
            (self.in_both, "in both places"),
        ] {
            if count > 0 {
                let _ = write!(text, ", {word} {count}");
            }
        }
        let _ = write!(text, "; left: ready {}", count(self.left.ready));
        if !self.dead_letters {
            let _ =
                write!(text, ", delayed {}, leased {}", count(self.left.delayed), count(self.left.leased));
            if let Some(disabled) = self.left.disabled.filter(|disabled| *disabled > 0) {
                let _ = write!(text, ", disabled {disabled}: see `anyqueue enable`");
            }
        }
        output.result(&text, self)
    }
}
