//! Sending messages: declares the queues that they need, publishes them, and returns once they are safely
//! stored.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::{Error, ErrorKind, Result};
use lapin::Channel;
use lapin::types::FieldTable;

use super::Publisher;
use super::declare_lock::Purpose;
use super::growth::Growth;
use super::publication::{Publication, is_refused, is_unroutable, is_unsent};
use super::session::{POLL_INTERVAL, Session};
use crate::config::QueueType;
use crate::delay_queues::{self, DelayQueue};
use crate::error::uncertain;
use crate::names::{LevelQueue, Names};
use crate::topology::{HoldingQueue, bind, declare_delay_stage, declare_due, declare_level_queue, exists};

/// How long a queue for delayed messages is assumed to exist. Its removal is not noticed at once, because its
/// messages are only passing through.
const RECHECK_AFTER: Duration = Duration::from_secs(1);

/// An encoded message, its queue, and its delay in steps.
pub(crate) struct OutgoingMessage {
    pub(crate) level_queue: LevelQueue,
    pub(crate) steps: u32,
    pub(crate) body: Vec<u8>,
    /// AMQP headers.
    pub(crate) headers: Option<FieldTable>,
}

impl Publisher {
    /// Publishes to queues, which are declared first if necessary. Also returns the queues that were
    /// declared.
    pub(crate) async fn send(&self, messages: Vec<OutgoingMessage>) -> (Vec<Result<()>>, Vec<LevelQueue>) {
        let mut made = Vec::new();
        if messages.is_empty() {
            return (Vec::new(), made);
        }
        let count = messages.len();
        let all = |error: Error| vec![Err(error); count];
        let session = match self.session().await {
            Ok(session) => session,
            Err(error) => return (all(error), made),
        };
        if let Err(error) = self.ensure_all(&session, &messages, &mut made).await {
            return (all(error), made);
        }
        let young = self.young(&session, &messages);
        let names = &self.names;
        let mut to = Vec::with_capacity(count);
        let publications = messages.into_iter().map(|message| {
            let (exchange, key) = match message.steps {
                0 => (String::new(), names.queue(&message.level_queue)),
                steps => (
                    names.delay_stage(delay_queues::first_stage(steps)),
                    delay_queues::routing_key(steps, &message.level_queue),
                ),
            };
            to.push((message.level_queue, message.steps));
            Publication { exchange, key, body: message.body, headers: message.headers }
        });
        let mut answers = self.publish(&session, publications.collect()).await;
        let gone = to.iter().zip(&answers).filter(|(_, answer)| answer.as_ref().is_err_and(is_unroutable));
        for ((level_queue, steps), _) in gone {
            session.forget_queue(names, level_queue);
            delay_queues::queues_for(*steps)
                .for_each(|delay_queue| session.forget(&delay_queue.queue(names)));
        }
        if answers.iter().any(Result::is_ok)
            && let Err(error) = self.wait_until_old(&session, young).await
        {
            for answer in answers.iter_mut().filter(|answer| answer.is_ok()) {
                *answer = Err(uncertain(error.clone()));
            }
        }
        (answers, made)
    }

    /// Returns the queues that these messages pass through and that are not old. There is rarely any.
    fn young(&self, session: &Session, messages: &[OutgoingMessage]) -> Vec<Growth> {
        let (names, mut queues) = (&self.names, BTreeSet::new());
        if !session.growing.is_empty() {
            for message in messages {
                queues.insert(names.queue(&message.level_queue));
                if message.steps > 0 {
                    queues.extend([names.due_queue(&message.level_queue), names.stray()]);
                }
                queues.extend(
                    delay_queues::queues_for(message.steps).map(|delay_queue| delay_queue.queue(names)),
                );
            }
        }
        queues.iter().filter_map(|queue| session.growing.of(queue)).collect()
    }

    async fn ensure_all(
        &self,
        session: &Arc<Session>,
        messages: &[OutgoingMessage],
        made: &mut Vec<LevelQueue>,
    ) -> Result<()> {
        let mut seen = BTreeSet::new();
        for message in messages {
            let level_queue = &message.level_queue;
            if message.steps > 0 {
                self.recheck(session, level_queue, message.steps).await?;
            }
            if seen.insert((&level_queue.partition, level_queue.level))
                && self.ensure(session, level_queue).await?
            {
                made.push(level_queue.clone());
            }
            if message.steps > 0 {
                self.ensure_delay(session, message.steps, level_queue).await?;
            }
        }
        Ok(())
    }

    /// Makes sure that a queue exists.
    pub(crate) async fn declare(&self, level_queue: &LevelQueue) -> Result<()> {
        let session = self.session().await?;
        self.ensure(&session, level_queue).await.map(drop)
    }

    /// Makes sure that a queue exists even if somebody has removed it.
    pub(crate) async fn redeclare(&self, level_queue: &LevelQueue) -> Result<()> {
        let session = self.session().await?;
        session.forget_queue(&self.names, level_queue);
        self.ensure(&session, level_queue).await.map(drop)
    }

    /// Makes sure that a queue exists. Returns whether it was declared just now.
    async fn ensure(&self, session: &Arc<Session>, level_queue: &LevelQueue) -> Result<bool> {
        if session.knows(&level_queue.routing_word()) {
            return Ok(false);
        }
        session.wait_until_unblocked(Instant::now() + self.limit()).await?;
        let mut control = session.control.lock().await;
        if session.knows(&level_queue.routing_word()) {
            return Ok(false);
        }
        let queue = self.names.queue(level_queue);
        let (lock, old) = match self.config.queue_type {
            QueueType::Quorum => {
                let until = tokio::time::Instant::now() + self.limit();
                let made = level_queue.routing_word();
                let names = (queue.as_str(), made.as_str());
                self.lock_unless_declared(session, &mut control, names, Purpose::Keeps, until).await?
            }
            QueueType::Classic => (None, true),
        };
        let declaring = async {
            let channel = session.control(&mut control).await?;
            declare_level_queue(channel, &self.names, self.config.queue_type, level_queue).await
        };
        self.on(&session.conn, declaring).await?;
        // Announced before anything is published to it, so that no consumer misses a message.
        let announcement = Publication::of(
            self.names.announcements(),
            String::new(),
            level_queue.routing_word().into_bytes(),
        );
        let told = session.publish(&[announcement], false, Instant::now() + self.limit()).await;
        told.into_iter().collect::<Result<()>>()?;
        drop(lock);
        if old {
            session.growing.forget(&queue);
        } else {
            self.grow(session, queue, level_queue.routing_word(), None);
        }
        session.has_declared(level_queue.routing_word());
        Ok(true)
    }

    /// Declares everything that a delay of this many steps needs, down to the queue that passes due messages
    /// on.
    async fn ensure_delay(&self, session: &Arc<Session>, steps: u32, level_queue: &LevelQueue) -> Result<()> {
        let due_queue = self.names.due_queue(level_queue);
        let missing: Vec<DelayQueue> = delay_queues::queues_for(steps)
            .filter(|delay_queue| !session.knows(&delay_queue.queue(&self.names)))
            .collect();
        if missing.is_empty() && session.knows(&due_queue) {
            return Ok(());
        }
        session.wait_until_unblocked(Instant::now() + self.limit()).await?;
        let (control, names) = (&mut session.holding.lock().await, &self.names);
        // One deadline for all of them: a client that is making one is mostly making the others too.
        let until = tokio::time::Instant::now() + self.limit() + self.config.queue_age;
        if !session.knows(&names.due()) {
            let declaring = async { declare_due(session.control(control).await?, names).await };
            self.on(&session.conn, declaring).await?;
            self.ensure_holding(session, control, HoldingQueue::Stray, until).await?;
            session.has_declared(names.due());
        }
        if !session.knows(&due_queue) {
            self.ensure_holding(session, control, HoldingQueue::Due(level_queue), until).await?;
        }
        for stage in 0..=delay_queues::first_stage(steps) {
            if !session.knows(&names.delay_stage(stage)) {
                let declaring =
                    async { declare_delay_stage(session.control(control).await?, names, stage).await };
                self.on(&session.conn, declaring).await?;
                session.has_declared(names.delay_stage(stage));
            }
        }
        for delay_queue in missing {
            self.ensure_holding(session, control, HoldingQueue::Delay(delay_queue), until).await?;
        }
        Ok(())
    }

    /// Makes sure that a queue exists that holds messages for a certain time, and that it has learned this
    /// time.
    async fn ensure_holding(
        &self,
        session: &Arc<Session>,
        control: &mut Option<Channel>,
        queue: HoldingQueue<'_>,
        until: tokio::time::Instant,
    ) -> Result<()> {
        let (name, names) = (queue.name(&self.names), &self.names);
        if session.knows(&name) {
            return Ok(()); // Another task has declared it in the meantime.
        }
        let marks = (name.as_str(), name.as_str());
        let (lock, _) = self.lock_unless_declared(session, control, marks, Purpose::Holds, until).await?;
        let trusted = self.config.queue_age.is_zero();
        let declaring = async {
            let channel = session.control(control).await?;
            queue.declare(channel, names).await?;
            if lock.is_some() && trusted {
                // It is in use from now on, whatever its age, so no other client may take it for abandoned.
                bind(channel, names.sink(), names.known(), Names::old(&name)).await?;
            }
            Ok(())
        };
        self.on(&session.conn, declaring).await?;
        if lock.is_some() && !trusted {
            self.grow(session, name.clone(), name.clone(), lock);
        } else {
            session.growing.forget(&name);
        }
        session.has_declared(name);
        Ok(())
    }

    /// Checks now and then whether the queues that a delayed message passes still exist, and forgets those that do not.
    async fn recheck(&self, session: &Session, level_queue: &LevelQueue, steps: u32) -> Result<()> {
        let (names, due_queue) = (&self.names, self.names.due_queue(level_queue));
        let passed = delay_queues::queues_for(steps).map(|delay_queue| delay_queue.queue(names));
        let is_due = |queue: &String| session.knows(queue) && !session.was_seen(queue, RECHECK_AFTER);
        let stale: Vec<String> = passed.chain([due_queue.clone()]).filter(is_due).collect();
        if stale.is_empty() {
            return Ok(());
        }
        session.wait_until_unblocked(Instant::now() + self.limit()).await?;
        let mut control = session.control.lock().await;
        for queue in stale.into_iter().filter(is_due) {
            let with = (queue == due_queue).then(|| names.queue(level_queue));
            let mut is_there = true;
            for asked in [Some(queue.clone()), with].into_iter().flatten() {
                let asking = async { exists(session.control(&mut control).await?, asked).await };
                is_there &= self.on(&session.conn, asking).await?;
            }
            match is_there {
                true => session.has_seen(queue),
                false if queue == due_queue => session.forget_queue(names, level_queue),
                false => session.forget(&queue),
            }
        }
        Ok(())
    }

    /// Publishes messages, and waits until the broker has confirmed each of them.
    async fn publish(&self, session: &Arc<Session>, messages: Vec<Publication>) -> Vec<Result<()>> {
        let deadline = Instant::now() + self.limit();
        let mut answers = session.publish(&messages, true, deadline).await;
        if answers.iter().any(|answer| answer.as_ref().is_err_and(is_unsent)) {
            // One message was too large, and the channel was closed over it. The limit is known from now on,
            // so this happens only once.
            session.publish_again(&messages, &mut answers, is_unsent, deadline).await;
        }
        while answers.iter().any(|answer| answer.as_ref().is_err_and(is_refused))
            && session.has_just_declared()
        {
            // Another client is just declaring the queue. The broker knows it, but refuses messages until it
            // runs.
            tokio::time::sleep(POLL_INTERVAL).await;
            session.publish_again(&messages, &mut answers, is_refused, deadline).await;
        }
        let timed_out =
            |answer: &Result<()>| matches!(answer, Err(error) if error.kind() == ErrorKind::TimedOut);
        if answers.iter().any(timed_out) {
            self.link.discard(&session.conn);
            let mut current = self.session.lock().await;
            current.take_if(|current| Arc::ptr_eq(current, session));
        }
        answers
    }
}
