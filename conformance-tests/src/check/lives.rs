//! What is known about each message: where it came and went, who held it, and what changed it.

use std::time::Duration;

use anyqueue::{Headers, PartitionId};

use super::span::Span;
use crate::history::{Act, Call, Change, Content, Delivered, Pushed};

/// A message came into a partition, or may have done so.
#[derive(Debug)]
pub(crate) struct Arrival<'a> {
    pub(crate) place: &'a PartitionId,
    pub(crate) span: Span,
    pub(crate) certain: bool,
    /// The push, if it was one, and its position in the batch; otherwise it was a move.
    pub(crate) pushed: Option<(&'a Pushed, usize)>,
}

/// A message left a partition, or may have done so.
#[derive(Debug)]
pub(crate) struct Departure {
    pub(crate) place: PartitionId,
    pub(crate) span: Span,
    pub(crate) certain: bool,
    pub(crate) moved: bool,
}

/// What is known about one message.
#[derive(Debug, Default)]
pub(crate) struct Life<'a> {
    pub(crate) pushes: Vec<(&'a Call, &'a Pushed)>,
    pub(crate) arrivals: Vec<Arrival<'a>>,
    pub(crate) departures: Vec<Departure>,
    /// In the order in which their pulls ended.
    pub(crate) holds: Vec<usize>,
    /// Headers that settlements gave it.
    pub(crate) headers: Vec<&'a Headers>,
    /// Whether there was a move or a postponement of which nobody knows whether it was done: if that takes a
    /// copy, there may be two.
    pub(crate) half_copied: bool,
    /// When its holder was asked to cancel it.
    pub(crate) cancelled: Vec<Span>,
    /// What changed it, or may have changed it, while it waited.
    pub(crate) amendments: Vec<Amended<'a>>,
}

/// A message was amended, or may have been.
#[derive(Debug)]
pub(crate) struct Amended<'a> {
    pub(crate) place: &'a PartitionId,
    pub(crate) span: Span,
    pub(crate) change: &'a Change,
    pub(crate) certain: bool,
}

/// One delivery and how long it was held.
#[derive(Debug)]
pub(crate) struct Hold<'a> {
    pub(crate) call: &'a Call,
    pub(crate) span: Span,
    pub(crate) place: &'a PartitionId,
    pub(crate) delivered: &'a Delivered,
    /// As asked for.
    pub(crate) lease: Duration,
    /// Until this moment nobody else may have the message.
    pub(crate) sure_until: Duration,
    /// From this moment on somebody else can have the message, if nobody settled it.
    pub(crate) over_by: Duration,
    pub(crate) fate: Fate<'a>,
    pub(crate) tried: Vec<Try<'a>>,
}

impl Hold<'_> {
    /// Something ended the hold at this moment, or may have done so, also for the attempts that were under
    /// way then.
    pub(crate) fn sure_no_longer_than(&mut self, moment: Duration) {
        self.sure_until = self.sure_until.min(moment);
        for attempt in self.tried.iter_mut().filter(|attempt| attempt.span.to >= moment) {
            attempt.sure_until = attempt.sure_until.min(moment);
        }
    }
}

/// How a hold ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate<'a> {
    /// With its lease.
    Lapsed,
    Settled(&'a Act, Span),
    /// A settlement may have ended it.
    Unknown,
}

/// An attempt to settle or to extend.
#[derive(Debug)]
pub(crate) struct Try<'a> {
    pub(crate) span: Span,
    /// `None` means an extension.
    pub(crate) action: Option<&'a Act>,
    /// `None` means unknown.
    pub(crate) held: Option<bool>,
    pub(crate) told_cancelled: bool,
    /// The hold's bounds before the attempt.
    pub(crate) sure_until: Duration,
    pub(crate) over_by: Duration,
}

/// A partition was paused or resumed, or may have been.
#[derive(Debug)]
pub(crate) struct Pause<'a> {
    pub(crate) place: &'a PartitionId,
    pub(crate) paused: bool,
    pub(crate) span: Span,
    pub(crate) certain: bool,
}

/// The content of a message as its first push gave it.
impl<'a> Life<'a> {
    pub(crate) fn content(&self) -> Option<&'a Content> {
        self.pushes.first().map(|(_, pushed)| &pushed.content)
    }
}
