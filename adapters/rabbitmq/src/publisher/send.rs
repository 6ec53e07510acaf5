//! Sending messages: declares what they need, publishes them, and returns once nothing can take them away again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::{Error, ErrorKind, Result};
use lapin::Channel;
use lapin::types::FieldTable;

use super::Publisher;
use super::declare_lock::Purpose;
use super::publication::{Publication, is_refused, is_unroutable, is_unsent};
use super::session::{POLL_INTERVAL, Session, Young};
use crate::config::QueueType;
use crate::delay_queues::{self, DelayQueue};
use crate::error::uncertain;
use crate::names::LevelQueue;
use crate::topology::{HoldingQueue, declare_delay_stage, declare_due, declare_level_queue, exists};

/// How long a queue for delayed messages is assumed to exist. Nobody learns at once that it was removed, because its messages are
/// only on their way.
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
    /// Publishes to queues, which are declared first if need be. Also returns the queues that were declared.
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

    /// Those queues that these messages pass and that are young: rarely any.
    fn young(&self, session: &Session, messages: &[OutgoingMessage]) -> Young {
        let (names, mut queues) = (&self.names, BTreeSet::new());
        if session.has_young() {
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
        queues
            .into_iter()
            .filter_map(|queue| session.young_since(&queue).map(|since| (queue, since)))
            .collect()
    }

    async fn ensure_all(
        &self,
        session: &Session,
        messages: &[OutgoingMessage],
        made: &mut Vec<LevelQueue>,
    ) -> Result<()> {
        let (mut seen, mut delayed) = (BTreeSet::new(), BTreeSet::new());
        for message in messages {
            let level_queue = &message.level_queue;
            if message.steps > 0 && delayed.insert((&level_queue.partition, level_queue.level)) {
                self.recheck(session, level_queue).await?;
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
    async fn ensure(&self, session: &Session, level_queue: &LevelQueue) -> Result<bool> {
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
                self.lock_unless_declared(
                    session,
                    &mut control,
                    &queue,
                    &level_queue.routing_word(),
                    Purpose::Keeps,
                )
                .await?
            }
            QueueType::Classic => (None, true),
        };
        let declaring = async {
            let channel = session.control(&mut control).await?;
            declare_level_queue(channel, &self.names, self.config.queue_type, level_queue).await
        };
        self.on(&session.conn, declaring).await?;
        // Announced before anything is published to it, so that no consumer misses it.
        let announcement = Publication::of(
            self.names.announcements(),
            String::new(),
            level_queue.routing_word().into_bytes(),
        );
        let told = session.publish(&[announcement], false, Instant::now() + self.limit()).await;
        told.into_iter().collect::<Result<()>>()?;
        drop(lock);
        session.has_declared(level_queue.routing_word(), (!old).then_some(queue));
        Ok(true)
    }

    /// Declares what a delay of this many steps needs, down to the queue that passes due messages on.
    async fn ensure_delay(&self, session: &Session, steps: u32, level_queue: &LevelQueue) -> Result<()> {
        let due_queue = self.names.due_queue(level_queue);
        let missing: Vec<DelayQueue> = delay_queues::queues_for(steps)
            .filter(|delay_queue| !session.knows(&delay_queue.queue(&self.names)))
            .collect();
        if missing.is_empty() && session.knows(&due_queue) {
            return Ok(());
        }
        session.wait_until_unblocked(Instant::now() + self.limit()).await?;
        let (control, names) = (&mut session.control.lock().await, &self.names);
        if !session.knows(&names.due()) {
            let declaring = async { declare_due(session.control(control).await?, names).await };
            self.on(&session.conn, declaring).await?;
            self.ensure_holding(session, control, HoldingQueue::Stray).await?;
            session.has_declared(names.due(), None);
        }
        if !session.knows(&due_queue) {
            self.ensure_holding(session, control, HoldingQueue::Due(level_queue)).await?;
        }
        for stage in 0..=delay_queues::first_stage(steps) {
            if !session.knows(&names.delay_stage(stage)) {
                let declaring =
                    async { declare_delay_stage(session.control(control).await?, names, stage).await };
                self.on(&session.conn, declaring).await?;
                session.has_declared(names.delay_stage(stage), None);
            }
        }
        for delay_queue in missing {
            self.ensure_holding(session, control, HoldingQueue::Delay(delay_queue)).await?;
        }
        Ok(())
    }

    /// Makes sure that a queue exists that holds messages for a time, and that it knows for how long.
    async fn ensure_holding(
        &self,
        session: &Session,
        control: &mut Option<Channel>,
        queue: HoldingQueue<'_>,
    ) -> Result<()> {
        let name = queue.name(&self.names);
        let (lock, old) = self.lock_unless_declared(session, control, &name, &name, Purpose::Holds).await?;
        let declaring = async { queue.declare(session.control(control).await?, &self.names).await };
        self.on(&session.conn, declaring).await?;
        drop(lock);
        session.has_declared(name.clone(), (!old).then_some(name));
        Ok(())
    }

    /// Checks now and then whether a queue for delayed messages still exists, and forgets it if it does not.
    async fn recheck(&self, session: &Session, level_queue: &LevelQueue) -> Result<()> {
        let due_queue = self.names.due_queue(level_queue);
        if !session.knows(&due_queue) || session.was_seen(&due_queue, RECHECK_AFTER) {
            return Ok(());
        }
        session.wait_until_unblocked(Instant::now() + self.limit()).await?;
        let mut control = session.control.lock().await;
        if session.was_seen(&due_queue, RECHECK_AFTER) {
            return Ok(());
        }
        for queue in [self.names.queue(level_queue), due_queue.clone()] {
            let asking = async { exists(session.control(&mut control).await?, queue).await };
            if !self.on(&session.conn, asking).await? {
                session.forget_queue(&self.names, level_queue);
                return Ok(());
            }
        }
        session.has_seen(due_queue);
        Ok(())
    }

    /// Publishes messages and waits until the broker has confirmed each.
    async fn publish(&self, session: &Arc<Session>, messages: Vec<Publication>) -> Vec<Result<()>> {
        let deadline = Instant::now() + self.limit();
        let mut answers = session.publish(&messages, true, deadline).await;
        if answers.iter().any(|answer| answer.as_ref().is_err_and(is_unsent)) {
            // One was too large and closed the channel. The limit is known from now on, so this happens once.
            session.publish_again(&messages, &mut answers, is_unsent, deadline).await;
        }
        while answers.iter().any(|answer| answer.as_ref().is_err_and(is_refused))
            && session.has_just_declared()
        {
            // Another client is just declaring the queue: the broker knows it, and refuses messages until it runs.
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
