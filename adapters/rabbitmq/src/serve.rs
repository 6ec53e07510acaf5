//! How waiting pulls are served: first what is ready, the most urgent first; then the server is let send as much as is waited for.

use std::cmp::Reverse;
use std::time::Duration;

use anyqueue::Result;

use crate::actor::Actor;
use crate::command::Waiting;
use crate::desk::{Arrived, Desk};
use crate::error::silent;
use crate::names::lines;

/// The most messages that are asked for at once.
pub(crate) const MOST: usize = 5000;
/// How long a level is passed over that somebody has removed and that cannot be made anew.
const MISSING: Duration = Duration::from_secs(10);
/// How often a pull looks for more than it has found.
const ROUNDS: usize = 8;

impl Actor {
    /// Serves all who wait.
    pub(crate) async fn serve(&mut self) -> Result<()> {
        self.keep_time().await?;
        if let Some(desk) = &mut self.desk {
            desk.tell_free()?;
        }
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.open().await?;
        self.look_again();
        self.take_ready().await?;
        self.answer().await?;
        self.listen().await
    }

    /// Whoever gets something and has room for more, gets what else is ready.
    fn look_again(&mut self) {
        let come = self.desk.as_ref().map_or(0, |desk| desk.spare.len());
        if let Some(first) = self.waiting.front_mut()
            && (1..first.max).contains(&come)
        {
            first.fresh = true;
        }
    }

    /// A channel, and what levels there are. Whoever waited on a channel before looks anew.
    async fn open(&mut self) -> Result<()> {
        if self.desk.as_ref().is_some_and(Desk::is_alive) {
            return Ok(());
        }
        self.desk = None;
        for waiting in &mut self.waiting {
            waiting.fresh = true;
        }
        let tools = &self.tools;
        let (conn, channel) = tools.feed.channel().await?;
        let known = async {
            if tools.publisher.is_blocked().await {
                Err(silent())
            } else {
                tools.publisher.known(&self.partition).await
            }
        };
        let found = if let Ok(found) = known.await {
            found
        } else {
            // Whoever publishes may have to wait, or lack the right: this way needs neither, but fills the server's log.
            let found = tools.feed.try_all(lines(&self.partition)).await?;
            found.into_iter().map(|(line, _)| line).collect()
        };
        self.guarded.clear();
        self.missing.retain(|_, since| since.elapsed() < MISSING);
        let there = found.iter().map(|line| line.level).filter(|level| !self.missing.contains_key(level));
        self.levels.extend(there);
        self.desk = Some(Desk::new(conn, channel, &self.partition, tools));
        Ok(())
    }

    /// Brings what is ready for those who have not looked yet.
    async fn take_ready(&mut self) -> Result<()> {
        let looks = |pull: &&Waiting| pull.fresh && !pull.stop.is_cancelled();
        if !self.waiting.iter().any(|pull| looks(&pull)) {
            return Ok(());
        }
        let ready = self.prefetch();
        let levels: Vec<u8> = self.levels.iter().rev().copied().collect();
        if ready == 0
            && let [only] = levels.as_slice()
        {
            self.flow(*only).await?;
        }
        let wanted: usize = self.waiting.iter().map(|pull| if looks(&pull) { pull.max } else { 1 }).sum();
        let wanted = wanted.min(MOST);
        for waiting in &mut self.waiting {
            waiting.fresh = false;
        }
        let Some(desk) = &mut self.desk else { return Ok(()) };
        if ready > 0 {
            for level in levels {
                desk.stand(level, &mut self.stock).await?;
                if desk.spare.is_empty() {
                    desk.catch_up(level).await?;
                }
            }
            return Ok(());
        }
        let missing = |desk: &Desk| wanted.saturating_sub(desk.spare.len());
        if levels.is_empty() || missing(desk) == 0 {
            return Ok(());
        }
        // Again if others were faster, or gave something back meanwhile.
        for _ in 0..ROUNDS {
            let counts = desk.counts(&levels).await?;
            let mut found = false;
            for (level, count) in levels.iter().zip(counts) {
                let most = missing(desk);
                let ready = if desk.lags(*level) { most } else { most.min(count) };
                if ready == 0 {
                    continue;
                }
                found = true;
                if levels.len() == 1 {
                    desk.draw(ready);
                }
                desk.bring(*level, ready).await?;
            }
            if !found || missing(desk) == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Hands over what has come, in order; ends waits that are over. Nothing may come later for whoever is answered, so credit that
    /// was theirs is taken back before.
    async fn answer(&mut self) -> Result<()> {
        let ready = self.prefetch();
        loop {
            let come = self.desk.as_ref().map_or(0, |desk| desk.spare.len());
            let left = self.left_after(come);
            let Some(desk) = &mut self.desk else { break };
            let too_much: Vec<u8> =
                self.levels.iter().filter(|level| desk.open(**level) > left).copied().collect();
            if too_much.is_empty() || left == self.waiting.len() || ready > 0 {
                break;
            }
            desk.withdraw(&too_much).await?;
        }
        self.hand_over()
    }

    /// How much is waited for of each level once so many messages are handed over and the waits that are over have ended.
    fn left_after(&self, mut messages: usize) -> usize {
        let is_left = |pull: &&Waiting| {
            let served = messages > 0 && !pull.is_over();
            messages = messages.saturating_sub(if served { pull.max } else { 0 });
            !served && !pull.is_over()
        };
        let left = self.waiting.iter().filter(is_left).count();
        left.min(self.most_awaited())
    }

    fn hand_over(&mut self) -> Result<()> {
        if let Some(desk) = &mut self.desk {
            // Within a level as the server sent them: they have come through several consumers.
            desk.spare.sort_unstable_by_key(|message| (Reverse(message.level), message.number));
        }
        // Those who go on waiting come first: what is given to the others may come back.
        let (over, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(Waiting::is_over);
        let mut answers = Vec::new();
        for pull in waiting {
            match self.take_spare(pull.max) {
                messages if messages.is_empty() => self.waiting.push_back(pull),
                messages => answers.push((pull, messages)),
            }
        }
        for pull in over {
            let messages = self.take_spare(pull.max);
            answers.push((pull, messages));
        }
        // What came for nobody goes back before anybody hears that there is nothing more.
        let given_back = match &mut self.desk {
            Some(desk) if self.waiting.is_empty() && self.tools.config.prefetch == 0 => {
                let spare = std::mem::take(&mut desk.spare);
                desk.give_back_unseen(spare)
            }
            _ => Ok(()),
        };
        for (pull, messages) in answers {
            self.reply(pull, messages);
        }
        given_back
    }

    pub(crate) fn take_spare(&mut self, most: usize) -> Vec<Arrived> {
        let taken: Vec<Arrived> = self
            .desk
            .as_mut()
            .map_or_else(Vec::new, |desk| desk.spare.drain(..most.min(desk.spare.len())).collect());
        self.stock.was_drawn_on(taken.len());
        taken
    }

    /// Of several levels one message each: what comes beyond what is waited for must be little.
    fn most_awaited(&self) -> usize {
        if self.levels.len() > 1 { 1 } else { MOST }
    }

    /// How many messages of each level are held ready for pulls to come.
    pub(crate) fn prefetch(&self) -> usize {
        self.tools.config.ready()
    }

    /// How many messages of each level are waited for.
    fn awaited(&self) -> usize {
        self.waiting.len().min(self.most_awaited())
    }

    /// Lets the server send what is waited for, and no more.
    async fn listen(&mut self) -> Result<()> {
        let (awaited, ready) = (self.awaited(), self.prefetch());
        let Some(desk) = self.desk.as_mut() else { return Ok(()) };
        for level in &self.levels {
            if ready > 0 {
                desk.stand(*level, &mut self.stock).await?;
                continue;
            }
            if desk.open(*level) > awaited {
                desk.retire(*level)?; // what is on its way is for those who wait
            }
            if desk.open(*level) < awaited {
                desk.offer(*level, awaited).await?;
            }
        }
        Ok(())
    }

    /// Whether the server may send what nobody waits for, or has.
    pub(crate) fn has_excess(&self, desk: &Desk) -> bool {
        let awaited = self.awaited();
        if self.prefetch() > 0 && !self.waiting.is_empty() {
            return false;
        }
        let lines = self.levels.iter().any(|level| desk.open(*level) > awaited);
        lines || (self.waiting.is_empty() && !desk.spare.is_empty())
    }

    /// Takes back credit that nobody needs, and releases what nobody has come for.
    pub(crate) fn let_go(&mut self) -> Result<()> {
        let awaited = self.awaited();
        let nobody = self.waiting.is_empty();
        let Some(desk) = &mut self.desk else { return Ok(()) };
        for level in &self.levels {
            if nobody || desk.open(*level) > awaited {
                desk.retire(*level)?;
            }
        }
        if nobody {
            let spare = std::mem::take(&mut desk.spare);
            self.stock.was_too_large(spare.len());
            desk.give_back_unseen(spare)?;
        }
        Ok(())
    }
}
