//! How waiting pulls are served: first what is ready, the most urgent first; then the server is let send as much as is waited for.

use std::cmp::Reverse;
use std::time::Instant;

use anyqueue::{PartitionId, Result};

use crate::actor::Actor;
use crate::desk::Desk;
use crate::names::Line;

/// The most messages that are asked for at once.
const MOST: usize = 5000;
/// By how much credit may exceed what is waited for, for a moment, before it is taken back.
const TOLERATED: usize = 9;

impl Actor {
    /// Serves all who wait.
    pub(crate) async fn serve(&mut self) -> Result<()> {
        self.keep_time().await?;
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.open().await?;
        if self.waiting.iter().any(|waiting| waiting.fresh) {
            self.take_ready().await?;
        }
        self.answer();
        self.listen().await
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
        let line = Line::new(&self.partition, 0);
        let found = match tools.publisher.is_blocked().await {
            false => tools.publisher.known(&lines(&self.partition)).await?,
            // Whoever publishes now waits: what was known before must do.
            true => Vec::new(),
        };
        let found = (0..).zip(found).filter(|(_, exists)| *exists).map(|(level, _)| level);
        self.levels.extend(found);
        self.desk = Some(Desk::new(conn, channel, line, tools.names.clone(), tools.config.call_timeout));
        Ok(())
    }

    /// Brings what is ready for those who have not looked yet.
    async fn take_ready(&mut self) -> Result<()> {
        let wanted: usize = self.waiting.iter().map(|pull| if pull.fresh { pull.max } else { 1 }).sum();
        let wanted = wanted.min(MOST);
        for waiting in &mut self.waiting {
            waiting.fresh = false;
        }
        let Some(desk) = &mut self.desk else { return Ok(()) };
        let levels: Vec<u8> = self.levels.iter().rev().copied().collect();
        let missing = |desk: &Desk| wanted.saturating_sub(desk.spare.len());
        if levels.is_empty() || missing(desk) == 0 {
            return Ok(());
        }
        if let [only] = levels.as_slice()
            && desk.draw(missing(desk))
        {
            let most = missing(desk);
            desk.bring(*only, most).await?;
        }
        if missing(desk) == 0 {
            return Ok(());
        }
        let counts = desk.counts(&levels).await?;
        for (level, count) in levels.iter().zip(counts) {
            let most = missing(desk);
            let ready = if desk.lags(*level) { most } else { most.min(count) };
            if ready == 0 {
                continue;
            }
            if levels.len() == 1 {
                desk.draw(ready);
            }
            desk.bring(*level, ready).await?;
        }
        Ok(())
    }

    /// Hands over what has come, in order; ends waits that are over.
    fn answer(&mut self) {
        let now = Instant::now();
        if let Some(desk) = &mut self.desk {
            desk.spare.sort_by_key(|message| Reverse(message.level));
        }
        while let Some(desk) = self.desk.as_mut().filter(|desk| !desk.spare.is_empty()) {
            let Some(waiting) = self.waiting.pop_front() else { break };
            let many = waiting.max.min(desk.spare.len());
            let messages = desk.spare.drain(..many).collect();
            self.reply(waiting, messages);
        }
        let (over, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(|pull| pull.until <= now);
        self.waiting = waiting;
        let over: std::collections::VecDeque<_> = over;
        for waiting in over {
            self.reply(waiting, Vec::new());
        }
    }

    /// How many messages of each level are waited for.
    fn awaited(&self) -> usize {
        // Of several levels one message each: what comes beyond what is waited for must be little.
        let most = if self.levels.len() > 1 { 1 } else { MOST };
        self.waiting.len().min(most)
    }

    /// Lets the server send what is waited for, and no more.
    async fn listen(&mut self) -> Result<()> {
        let awaited = self.awaited();
        let Some(desk) = self.desk.as_mut() else { return Ok(()) };
        for level in &self.levels {
            let open = desk.open(*level);
            if open > awaited + TOLERATED {
                desk.retire(*level)?;
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
        let lines = self.levels.iter().any(|level| desk.open(*level) > awaited);
        lines || (self.waiting.is_empty() && !desk.spare.is_empty())
    }

    /// Takes back credit that nobody needs, and gives back what nobody has come for.
    pub(crate) fn let_go(&mut self) -> Result<()> {
        let awaited = self.awaited();
        let nobody = self.waiting.is_empty();
        let Some(desk) = &mut self.desk else { return Ok(()) };
        for level in &self.levels {
            if desk.open(*level) > awaited {
                desk.retire(*level)?;
            }
        }
        if nobody {
            let spare = std::mem::take(&mut desk.spare);
            desk.give_back(spare)?;
        }
        Ok(())
    }
}

/// All lines that a partition can have.
pub(crate) fn lines(partition: &PartitionId) -> Vec<Line> {
    (0..crate::capabilities::PRIORITY_LEVELS).map(|level| Line::new(partition, level)).collect()
}
