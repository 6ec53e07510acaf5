//! Serving one pull after the other while a partition's only level is known to have what they ask for.
//!
//! What is settled meanwhile is heard, and each pull that comes lets the server send more before what was asked for earlier has
//! come: so a consumer in full flow waits for the disk of the server only once, and not for each pull.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use anyqueue::{ErrorKind, Result};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Actor, at, next};
use crate::error::error;
use crate::serve::MAX_CREDIT;

/// Between two messages that are on their way it is never quiet for so long, unless others have got them.
const QUIET: Duration = Duration::from_millis(10);
/// How long what the server says is ready may take to come.
const OVERDUE: Duration = Duration::from_secs(2);
/// After so long no further pull joins, so that what is due by time is done.
const MAX_RUN: Duration = Duration::from_millis(200);

impl Actor {
    /// Serves pulls in line, if the only level is known to have what they ask for. Whoever could not be served is left to look anew.
    pub(crate) async fn pipeline(&mut self, level: u8) -> Result<()> {
        if !self.waiting.iter().all(|pull| pull.fresh) {
            return Ok(());
        }
        let served = self.run_pipeline(level).await;
        for pull in &mut self.waiting {
            pull.fresh = true;
        }
        served
    }

    async fn run_pipeline(&mut self, level: u8) -> Result<()> {
        let mut moved = Instant::now();
        let (end, mut quiet) = (moved + MAX_RUN, moved + QUIET);
        let mut barrier: Option<BoxFuture<'static, Result<usize>>> = None;
        let mut open = true;
        loop {
            open = open && Instant::now() < end && self.admit(level).await?;
            self.answer_whole();
            if self.promised() == 0 {
                return Ok(());
            }
            let before = self.buffered();
            let mut over = false;
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Some(command) => self.handle(command)?,
                    None => return Ok(()),
                },
                come = next(&mut self.channel) => come?,
                left = answered(&mut barrier) => {
                    barrier = None;
                    over = left? == 0 || moved.elapsed() > OVERDUE;
                    quiet = Instant::now() + QUIET;
                }
                () = at(Some(quiet)), if barrier.is_none() => {
                    barrier = self.channel.as_mut().map(|channel| channel.barrier(level).boxed());
                }
            }
            self.take_in()?;
            if self.buffered() > before {
                moved = Instant::now();
                quiet = moved + QUIET;
            }
            let gone = || error(ErrorKind::Unavailable, "the consumer's channel ended");
            let channel = self.channel.as_mut().ok_or_else(gone)?;
            if channel.count_may_lag(level) {
                // Consumers were ended: all that they were sent must have come before others are asked.
                channel.cancel_and_drain(&[level]).await?;
                over = true;
            }
            if over {
                self.answer_whole();
                return Ok(());
            }
        }
    }

    /// Promises to those next in line what they ask for, and lets the server send it. Returns whether others may join later.
    async fn admit(&mut self, level: u8) -> Result<bool> {
        let mut promised = self.promised();
        let mut open = self.levels.len() == 1;
        let Some(channel) = &mut self.channel else { return Ok(false) };
        for pull in self.waiting.iter_mut().filter(|pull| pull.fresh) {
            let missing = (promised + pull.max).saturating_sub(channel.buffered.len());
            let room = promised == 0 || promised + pull.max <= MAX_CREDIT && channel.can_add(level, missing);
            open = open && room && !pull.stop.is_cancelled() && channel.take_from_backlog(pull.max);
            if !open {
                break;
            }
            pull.fresh = false;
            promised += pull.max;
        }
        let missing = promised.saturating_sub(channel.buffered.len());
        if channel.credit(level) < missing {
            channel.grant(level, missing).await?;
        }
        Ok(open)
    }

    /// Messages that have come and nobody has been given.
    fn buffered(&self) -> usize {
        self.channel.as_ref().map_or(0, |channel| channel.buffered.len())
    }

    /// What those in line were promised and have not been given yet.
    fn promised(&self) -> usize {
        self.waiting.iter().filter(|pull| !pull.fresh).map(|pull| pull.max).sum()
    }

    /// Answers those whose messages have all come, in order.
    fn answer_whole(&mut self) {
        if let Some(channel) = &mut self.channel {
            // As the server sent them: they have come through several consumers.
            channel.buffered.sort_unstable_by_key(|message| (Reverse(message.level), message.delivery_tag));
        }
        let is_whole = |actor: &Self| {
            actor.waiting.front().is_some_and(|pull| !pull.fresh && pull.max <= actor.buffered())
        };
        while is_whole(self)
            && let Some(pull) = self.waiting.pop_front()
        {
            let messages = self.take_buffered(pull.max);
            self.reply(pull, messages);
        }
    }
}

/// The answer to a question, if one was asked.
async fn answered(barrier: &mut Option<BoxFuture<'static, Result<usize>>>) -> Result<usize> {
    match barrier {
        Some(barrier) => barrier.await,
        None => std::future::pending().await,
    }
}
