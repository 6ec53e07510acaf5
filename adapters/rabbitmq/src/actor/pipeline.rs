//! Serving pulls in a pipeline, while a partition's only level is known to have enough messages for them.
//!
//! Settlements are processed meanwhile, and each new pull raises the credit before the messages of the
//! previous one have arrived. So a busy consumer waits for the server's disk once, not once for each pull.

use std::time::{Duration, Instant};

use anyqueue::{ErrorKind, Result};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Actor, at, next};
use crate::error::ERRORS;
use crate::serve::MAX_CREDIT;

/// While messages are on their way, the pause between two is never this long, unless other consumers got
/// them.
const QUIET: Duration = Duration::from_millis(10);
/// How long messages that the server counts as ready may take to arrive.
const OVERDUE: Duration = Duration::from_secs(2);
/// After this time no further pull joins, so that timers that are due can run.
const MAX_RUN: Duration = Duration::from_millis(200);

impl Actor {
    /// Serves pulls in order, as long as the only level is known to have enough messages for them. Pulls that
    /// could not be served look again.
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
            self.answer_whole()?;
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
            let gone = || ERRORS.error(ErrorKind::Unavailable, "the consumer's channel was closed");
            let channel = self.channel.as_mut().ok_or_else(gone)?;
            if channel.count_may_lag(level) {
                // Consumers were cancelled, so everything they were sent must arrive before other consumers
                // are started.
                channel.cancel_and_drain(&[level]).await?;
                over = true;
            }
            if over {
                return self.answer_whole();
            }
        }
    }

    /// Promises messages to the next pulls and grants the credit for them. Returns whether further pulls may
    /// join later.
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

    /// How many messages have arrived and were not given to a pull yet.
    fn buffered(&self) -> usize {
        self.channel.as_ref().map_or(0, |channel| channel.buffered.len())
    }

    /// How many messages were promised to pulls and not given to them yet.
    fn promised(&self) -> usize {
        self.waiting.iter().filter(|pull| !pull.fresh).map(|pull| pull.max).sum()
    }

    /// Answers the pulls of which all messages have arrived, in order.
    fn answer_whole(&mut self) -> Result<()> {
        if let Some(channel) = &mut self.channel {
            channel.take_in_order()?;
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
        Ok(())
    }
}

/// Waits for the answer to a barrier, if one was sent.
async fn answered(barrier: &mut Option<BoxFuture<'static, Result<usize>>>) -> Result<usize> {
    match barrier {
        Some(barrier) => barrier.await,
        None => std::future::pending().await,
    }
}
