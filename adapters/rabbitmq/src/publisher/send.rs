//! Storing messages: what they need is made first, then they are published, and answered when nothing can take them away again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::{Error, ErrorKind, Result};
use lapin::types::FieldTable;

use super::Publisher;
use super::publication::{Publication, is_refused, is_unroutable, unsent};
use super::session::{LOOK, Session, Young};
use crate::config::QueueType;
use crate::error::uncertain;
use crate::ladder::{self, Rest};
use crate::names::Line;
use crate::topology::{declare_due, declare_landing, declare_line, declare_rest, declare_rung, exists};

/// How long a line of delayed messages is believed to be there still. Nobody hears when it is removed: they are only on their way.
const BELIEVED: Duration = Duration::from_secs(1);

/// A stored form and where it goes, after so many steps of delay.
pub(crate) struct Addressed {
    pub(crate) line: Line,
    pub(crate) steps: u32,
    pub(crate) body: Vec<u8>,
    /// Headers of AMQP's.
    pub(crate) headers: Option<FieldTable>,
}

impl Publisher {
    /// Publishes to lines, which are made first if need be. Answers also which were.
    pub(crate) async fn send(&self, messages: Vec<Addressed>) -> (Vec<Result<()>>, Vec<Line>) {
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
                0 => (String::new(), names.queue(&message.line)),
                steps => (names.rung(ladder::first_rung(steps)), ladder::key(steps, &message.line)),
            };
            to.push((message.line, message.steps));
            Publication { exchange, key, body: message.body, headers: message.headers }
        });
        let mut answers = self.publish(&session, publications.collect()).await;
        let gone = to.iter().zip(&answers).filter(|(_, answer)| answer.as_ref().is_err_and(is_unroutable));
        for ((line, steps), _) in gone {
            session.forget_line(names, line);
            ladder::rests(*steps).for_each(|rest| session.forget(&rest.queue(names)));
        }
        if answers.iter().any(Result::is_ok)
            && let Err(error) = self.grown(&session, young).await
        {
            for answer in answers.iter_mut().filter(|answer| answer.is_ok()) {
                *answer = Err(uncertain(error.clone()));
            }
        }
        (answers, made)
    }

    /// Those of the queues that these messages go through that are young: seldom any.
    fn young(&self, session: &Session, messages: &[Addressed]) -> Young {
        let (names, mut queues) = (&self.names, BTreeSet::new());
        if session.has_young() {
            for message in messages {
                queues.insert(names.queue(&message.line));
                if message.steps > 0 {
                    queues.insert(names.landing(&message.line));
                }
                queues.extend(ladder::rests(message.steps).map(|rest| rest.queue(names)));
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
        messages: &[Addressed],
        made: &mut Vec<Line>,
    ) -> Result<()> {
        let (mut seen, mut delayed) = (BTreeSet::new(), BTreeSet::new());
        for message in messages {
            let line = &message.line;
            if message.steps > 0 && delayed.insert((&line.partition, line.level)) {
                self.doubt(session, line).await?;
            }
            if seen.insert((&line.partition, line.level)) && self.ensure(session, line).await? {
                made.push(line.clone());
            }
            if message.steps > 0 {
                self.ensure_delay(session, message.steps, line).await?;
            }
        }
        Ok(())
    }

    /// Makes sure that a line exists.
    pub(crate) async fn make(&self, line: &Line) -> Result<()> {
        let session = self.session().await?;
        self.ensure(&session, line).await.map(drop)
    }

    /// Makes sure that a line exists, though somebody may have removed it.
    pub(crate) async fn renew(&self, line: &Line) -> Result<()> {
        let session = self.session().await?;
        session.forget_line(&self.names, line);
        self.ensure(&session, line).await.map(drop)
    }

    /// Makes sure that a line exists. Returns whether it was declared just now.
    async fn ensure(&self, session: &Session, line: &Line) -> Result<bool> {
        if session.knows(&line.word()) {
            return Ok(false);
        }
        session.takes_messages(Instant::now() + self.limit()).await?;
        let mut control = session.control.lock().await;
        if session.knows(&line.word()) {
            return Ok(false);
        }
        let queue = self.names.queue(line);
        let (turn, old) = match self.config.queue_type {
            QueueType::Quorum => self.turn_unless_made(session, &mut control, &queue, &line.word()).await?,
            QueueType::Classic => (None, true),
        };
        let declaring = async {
            let channel = session.control(&mut control).await?;
            declare_line(channel, &self.names, self.config.queue_type, line).await
        };
        self.on(&session.conn, declaring).await?;
        // Told before anything is published there, so that no consumer overlooks it.
        let news = Publication::of(self.names.news(), String::new(), line.word().into_bytes());
        let told = session.publish(&[news], false, Instant::now() + self.limit()).await;
        told.into_iter().collect::<Result<()>>()?;
        drop(turn);
        session.has_declared(line.word(), (!old).then_some(queue));
        Ok(true)
    }

    /// Makes sure that the ladder has what a delay of so many steps needs, down to where the line takes it from.
    async fn ensure_delay(&self, session: &Session, steps: u32, line: &Line) -> Result<()> {
        let landing = self.names.landing(line);
        let rests: Vec<Rest> =
            ladder::rests(steps).filter(|rest| !session.knows(&rest.queue(&self.names))).collect();
        if rests.is_empty() && session.knows(&landing) {
            return Ok(());
        }
        session.takes_messages(Instant::now() + self.limit()).await?;
        let mut control = session.control.lock().await;
        if !session.knows(&landing) {
            let (turn, old) = self.turn_unless_made(session, &mut control, &landing, &landing).await?;
            let declaring = async {
                let channel = session.control(&mut control).await?;
                if !session.knows(&self.names.due()) {
                    declare_due(channel, &self.names).await?;
                    session.has_declared(self.names.due(), None);
                }
                declare_landing(channel, &self.names, line).await
            };
            self.on(&session.conn, declaring).await?;
            drop(turn);
            session.has_declared(landing.clone(), (!old).then_some(landing));
        }
        for rung in 0..=ladder::first_rung(steps) {
            if !session.knows(&self.names.rung(rung)) {
                let declaring =
                    async { declare_rung(session.control(&mut control).await?, &self.names, rung).await };
                self.on(&session.conn, declaring).await?;
                session.has_declared(self.names.rung(rung), None);
            }
        }
        for rest in rests {
            let queue = rest.queue(&self.names);
            let old = self.is_old(session, &mut control, &queue).await?;
            let declaring =
                async { declare_rest(session.control(&mut control).await?, &self.names, rest).await };
            self.on(&session.conn, declaring).await?;
            session.has_declared(queue.clone(), (!old).then_some(queue));
        }
        Ok(())
    }

    /// Asks now and then whether a line of delayed messages is there still, and forgets it if it is not.
    async fn doubt(&self, session: &Session, line: &Line) -> Result<()> {
        let landing = self.names.landing(line);
        if !session.knows(&landing) || session.was_seen(&landing, BELIEVED) {
            return Ok(());
        }
        session.takes_messages(Instant::now() + self.limit()).await?;
        let mut control = session.control.lock().await;
        if session.was_seen(&landing, BELIEVED) {
            return Ok(());
        }
        for queue in [self.names.queue(line), landing.clone()] {
            let asking = async { exists(session.control(&mut control).await?, queue).await };
            if !self.on(&session.conn, asking).await? {
                session.forget_line(&self.names, line);
                return Ok(());
            }
        }
        session.has_seen(landing);
        Ok(())
    }

    /// Publishes messages and waits for the broker's word on each.
    async fn publish(&self, session: &Arc<Session>, messages: Vec<Publication>) -> Vec<Result<()>> {
        let deadline = Instant::now() + self.limit();
        let mut answers = session.publish(&messages, true, deadline).await;
        if answers.iter().any(|answer| answer.as_ref().is_err_and(unsent)) {
            // One was too large and ended the channel. What is too large is known now, so that this comes once.
            session.publish_again(&messages, &mut answers, unsent, deadline).await;
        }
        while answers.iter().any(|answer| answer.as_ref().is_err_and(is_refused))
            && session.has_just_declared()
        {
            // Somebody else is just making the queue: the broker knows it, and refuses what comes before it is ready.
            tokio::time::sleep(LOOK).await;
            session.publish_again(&messages, &mut answers, is_refused, deadline).await;
        }
        let silent =
            |answer: &Result<()>| matches!(answer, Err(error) if error.kind() == ErrorKind::TimedOut);
        if answers.iter().any(silent) {
            self.link.discard(&session.conn);
            let mut current = self.session.lock().await;
            current.take_if(|current| Arc::ptr_eq(current, session));
        }
        answers
    }
}
