//! Publishing: confirmed, mandatory, and within a bounded window, on a connection of its own.
//!
//! A broker that is out of memory or disk stops reading from whoever publishes, so consumers have another connection.

mod age;
mod publication;
mod session;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::{ErrorKind, PartitionId, Result};
use lapin::Connection;

pub(crate) use self::publication::Publication;
use self::publication::{full, is_refused, is_unroutable};
use self::session::{LOOK, Session};
use crate::config::Config;
use crate::error::classify;
use crate::hello::Hello;
use crate::ladder::{self, Rest};
use crate::link::{Link, within};
use crate::names::{Line, Names, lines};
use crate::topology::{declare_line, declare_rest, declare_rung, declare_shared};

/// Calls that publish at once. More wait for their turn.
pub(crate) const CHANNELS: usize = 16;

/// Publishes for one storage.
pub(crate) struct Publisher {
    config: Arc<Config>,
    names: Names,
    link: Link,
    session: tokio::sync::Mutex<Option<Arc<Session>>>,
    ages: age::Ages,
}

impl Publisher {
    pub(crate) fn new(config: &Arc<Config>, names: &Names) -> Self {
        Self {
            config: Arc::clone(config),
            names: names.clone(),
            link: Link::new(config, "publisher"),
            session: tokio::sync::Mutex::default(),
            ages: age::Ages::default(),
        }
    }

    fn limit(&self) -> Duration {
        self.config.call_timeout
    }

    /// The session, made anew after a break: everything is declared again then.
    async fn session(&self) -> Result<Arc<Session>> {
        let mut current = self.session.lock().await;
        if let Some(session) = current.as_ref().filter(|session| session.is_alive()) {
            return Ok(Arc::clone(session));
        }
        let conn = self.link.connection().await?;
        let declaring = async {
            let control = conn.create_channel().await.map_err(classify)?;
            declare_shared(&control, &self.names).await?;
            Ok(control)
        };
        let control = self.on(&conn, declaring).await?;
        let session = Arc::new(Session::new(conn, control));
        *current = Some(Arc::clone(&session));
        Ok(session)
    }

    /// Connects, and declares nothing: a user may lack the right.
    pub(crate) async fn connect(&self) -> Result<()> {
        self.link.connection().await.map(drop)
    }

    /// What the server says of itself.
    pub(crate) async fn hello(&self) -> Result<Hello> {
        self.link.hello().await
    }

    /// What must be answered on a connection. One that is silent is given up, unless the broker has said why.
    async fn on<T>(&self, conn: &Arc<Connection>, call: impl Future<Output = Result<T>>) -> Result<T> {
        within(self.limit(), call).await.map_err(|error| {
            if conn.status().blocked() {
                return full();
            }
            if error.kind() == ErrorKind::TimedOut {
                self.link.discard(conn);
            }
            error
        })
    }

    /// Makes sure that a line exists. Answers whether it was declared just now.
    pub(crate) async fn ensure(&self, line: &Line) -> Result<bool> {
        let session = self.session().await?;
        if session.knows(&line.word()) {
            return Ok(false);
        }
        session.takes_messages(Instant::now() + self.limit()).await?;
        let mut control = session.control.lock().await;
        if session.knows(&line.word()) {
            return Ok(false);
        }
        let declaring = async {
            let channel = session.control(&mut control).await?;
            declare_line(channel, &self.names, self.config.queue_type, line).await
        };
        self.on(&session.conn, declaring).await?;
        // Told before anything is published there, so that no consumer overlooks it.
        let news =
            Publication { exchange: self.names.news(), key: String::new(), body: line.word().into_bytes() };
        let told = session.publish(&[news], false, Instant::now() + self.limit()).await;
        told.into_iter().collect::<Result<()>>()?;
        self.note_age(&session, self.names.queue(line)).await;
        session.has_declared(line.word());
        Ok(true)
    }

    /// Makes sure that the ladder has what a delay of so many steps needs.
    pub(crate) async fn ensure_delay(&self, steps: u32) -> Result<()> {
        let session = self.session().await?;
        let rests: Vec<Rest> =
            ladder::rests(steps).filter(|rest| !session.knows(&self.names.rest(*rest))).collect();
        if rests.is_empty() {
            return Ok(());
        }
        session.takes_messages(Instant::now() + self.limit()).await?;
        let new = rests.clone();
        let mut control = session.control.lock().await;
        let declaring = async {
            let channel = session.control(&mut control).await?;
            for rung in 0..=ladder::first_rung(steps) {
                if !session.knows(&self.names.rung(rung)) {
                    declare_rung(channel, &self.names, rung).await?;
                    session.has_declared(self.names.rung(rung));
                }
            }
            for rest in rests {
                declare_rest(channel, &self.names, rest).await?;
                session.has_declared(self.names.rest(rest));
            }
            Ok(())
        };
        self.on(&session.conn, declaring).await?;
        drop(control);
        for rest in new {
            self.note_age(&session, self.names.rest(rest)).await;
        }
        Ok(())
    }

    /// Publishes messages and waits for the broker's word on each.
    pub(crate) async fn publish(&self, messages: Vec<Publication>) -> Vec<Result<()>> {
        let count = messages.len();
        let session = match self.session().await {
            Ok(session) => session,
            Err(error) => return vec![Err(error); count],
        };
        let deadline = Instant::now() + self.limit();
        let mut answers = session.publish(&messages, true, deadline).await;
        while answers.iter().any(|answer| answer.as_ref().is_err_and(is_refused)) && session.is_young() {
            // Somebody else is just making the queue: the broker knows it, and refuses what comes before it is ready.
            tokio::time::sleep(LOOK).await;
            session.publish_refused(&messages, &mut answers, deadline).await;
        }
        let silent =
            |answer: &Result<()>| matches!(answer, Err(error) if error.kind() == ErrorKind::TimedOut);
        if answers.iter().any(silent) {
            self.link.discard(&session.conn);
            *self.session.lock().await = None;
        }
        if answers.iter().any(|answer| answer.as_ref().is_err_and(is_unroutable)) {
            session.forget();
        }
        answers
    }

    /// The lines that a partition has. Most have one, so whether there are more is asked first: the client logs what is returned.
    pub(crate) async fn known(&self, partition: &PartitionId) -> Result<Vec<Line>> {
        let first = self.known_of(vec![Line::new(partition, 0), Line::more(partition)]).await?;
        if first.iter().any(|line| line.level > 0) {
            self.known_of(lines(partition)).await
        } else {
            Ok(first)
        }
    }

    async fn known_of(&self, lines: Vec<Line>) -> Result<Vec<Line>> {
        let ask =
            |line: &Line| Publication { exchange: self.names.known(), key: line.word(), body: Vec::new() };
        let asked: Vec<_> = lines.iter().map(ask).collect();
        let session = self.session().await?;
        let answers = tokio::select! {
            answers = session.publish(&asked, true, Instant::now() + self.limit()) => answers,
            // It would not answer before the alarm is over; whoever asks has another way.
            () = session.blocked() => return Err(full()),
        };
        let mut known = Vec::new();
        for (line, answer) in lines.into_iter().zip(answers) {
            match answer {
                Ok(()) => known.push(line),
                Err(error) if is_unroutable(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(known)
    }

    /// Whether the broker takes no messages now, because it is out of memory or disk.
    pub(crate) async fn is_blocked(&self) -> bool {
        self.session.lock().await.as_ref().is_some_and(|session| session.conn.status().blocked())
    }

    /// Asks the broker now.
    pub(crate) async fn ask(&self) -> Result<()> {
        let session = self.session().await?;
        if session.conn.status().blocked() {
            return Ok(()); // It answers nothing on this connection until the alarm is over.
        }
        let mut control = session.control.lock().await;
        let asking = async { declare_shared(session.control(&mut control).await?, &self.names).await };
        self.on(&session.conn, asking).await
    }

    pub(crate) async fn close(&self, patience: Duration) {
        *self.session.lock().await = None;
        self.link.close(patience).await;
    }
}
