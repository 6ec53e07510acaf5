//! Publishing: confirmed, mandatory, and within a bounded window, on a connection of its own.
//!
//! A broker that is out of memory or disk stops reading from whoever publishes, so consumers have another connection.

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyqueue::{Error, ErrorKind, PartitionId, Result};
use futures_util::FutureExt;
use futures_util::future::join_all;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Channel, Confirmation, Connection, PublisherConfirm};
use tokio::sync::Semaphore;
use tokio::time::timeout_at;

use crate::config::Config;
use crate::error::{classify, own, silent, uncertain};
use crate::ladder::{self, Rest};
use crate::link::{Link, within};
use crate::names::{Line, Names, lines};
use crate::topology::{declare_line, declare_rest, declare_rung, declare_shared};

/// Calls that publish at once. More wait for their turn.
pub(crate) const CHANNELS: usize = 16;
/// Between two looks whether the broker takes messages again.
const LOOK: Duration = Duration::from_millis(20);
/// A queue that was declared longer ago is ready.
const YOUNG: Duration = Duration::from_secs(5);
const PERSISTENT: u8 = 2;

/// One message for the broker.
#[derive(Clone)]
pub(crate) struct Publication {
    pub(crate) exchange: String,
    pub(crate) key: String,
    pub(crate) body: Vec<u8>,
}

/// Publishes for one storage.
pub(crate) struct Publisher {
    config: Arc<Config>,
    names: Names,
    link: Link,
    session: tokio::sync::Mutex<Option<Arc<Session>>>,
}

/// What lives as long as one connection.
struct Session {
    conn: Arc<Connection>,
    /// Channels that nobody publishes on now.
    idle: Mutex<Vec<Channel>>,
    room: Semaphore,
    /// Words of lines, and names of the ladder's parts, that this session has declared.
    declared: Mutex<HashSet<String>>,
    /// When the last of them was.
    last_declared: Mutex<Instant>,
    /// Declares; apart, because what is refused ends its channel.
    control: tokio::sync::Mutex<Option<Channel>>,
}

type Sending<'a> = Pin<Box<dyn Future<Output = lapin::Result<PublisherConfirm>> + Send + 'a>>;

impl Publisher {
    pub(crate) fn new(config: &Arc<Config>, names: &Names) -> Self {
        Self {
            config: Arc::clone(config),
            names: names.clone(),
            link: Link::new(config, "publisher"),
            session: tokio::sync::Mutex::default(),
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
        let session = Arc::new(Session {
            conn,
            idle: Mutex::default(),
            room: Semaphore::new(CHANNELS),
            declared: Mutex::default(),
            last_declared: Mutex::new(Instant::now()),
            control: tokio::sync::Mutex::new(Some(control)),
        });
        *current = Some(Arc::clone(&session));
        Ok(session)
    }

    /// Connects, and declares nothing: a user may lack the right.
    pub(crate) async fn connect(&self) -> Result<()> {
        self.link.connection().await.map(drop)
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
        self.on(&session.conn, declaring).await
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
        let answers = session.publish(&asked, true, Instant::now() + self.limit()).await;
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

impl Session {
    fn is_alive(&self) -> bool {
        self.conn.status().connected()
    }

    fn knows(&self, word: &str) -> bool {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner).contains(word)
    }

    fn has_declared(&self, name: String) {
        *self.last_declared.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.declared.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
    }

    /// Somebody has removed a queue: what was declared is to be declared again.
    fn forget(&self) {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The channel for declarations, opened anew if the last one ended.
    async fn control<'c>(&self, control: &'c mut Option<Channel>) -> Result<&'c Channel> {
        if control.as_ref().is_some_and(|channel| !channel.status().connected()) {
            *control = None;
        }
        let current = match control.take() {
            Some(channel) => channel,
            None => self.conn.create_channel().await.map_err(classify)?,
        };
        Ok(control.insert(current))
    }

    /// Publishes messages on a channel that nobody else uses meanwhile: the client does not tell whose a returned message is, so
    /// whatever comes back on the channel must be of this call.
    async fn publish(&self, messages: &[Publication], mandatory: bool, deadline: Instant) -> Vec<Result<()>> {
        let count = messages.len();
        let all = |error: Error| vec![Err(error); count];
        if let Err(error) = self.takes_messages(deadline).await {
            return all(error);
        }
        let Ok(Ok(_room)) = timeout_at(deadline.into(), self.room.acquire()).await else {
            return all(own(
                ErrorKind::Full,
                "too many messages wait for the broker's word: nothing was sent",
            ));
        };
        let channel =
            match timeout_at(deadline.into(), self.channel()).await.unwrap_or_else(|_| Err(silent())) {
                Ok(channel) => channel,
                Err(error) => return all(error),
            };
        let sent: Vec<_> = messages.iter().map(|message| send(&channel, message, mandatory)).collect();
        let confirmed = sent.into_iter().map(|sent| async {
            match timeout_at(deadline.into(), confirmation(sent)).await {
                Ok(answer) => answer.map_err(|error| uncertain(classify(error))),
                Err(_) if self.conn.status().blocked() => Err(uncertain(full())),
                Err(_) => Err(uncertain(silent())),
            }
        });
        let confirmed = join_all(confirmed).await;
        if confirmed.iter().all(Result::is_ok) {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(channel);
        }
        judge(confirmed, messages, mandatory)
    }

    /// Whether a line was declared a moment ago.
    fn is_young(&self) -> bool {
        self.last_declared.lock().unwrap_or_else(PoisonError::into_inner).elapsed() < YOUNG
    }

    /// Publishes again what was refused.
    async fn publish_refused(&self, messages: &[Publication], answers: &mut [Result<()>], deadline: Instant) {
        let is_refused = |answer: &Result<()>| answer.as_ref().is_err_and(is_refused);
        let again: Vec<Publication> = messages
            .iter()
            .zip(answers.iter())
            .filter(|(_, answer)| is_refused(answer))
            .map(|(message, _)| message.clone())
            .collect();
        let places = answers.iter_mut().filter(|answer| is_refused(answer));
        for (place, answer) in places.zip(self.publish(&again, true, deadline).await) {
            *place = answer;
        }
    }

    /// A channel in confirm mode.
    async fn channel(&self) -> Result<Channel> {
        loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match idle {
                Some(channel) if channel.status().connected() => return Ok(channel),
                Some(_) => {}
                None => break,
            }
        }
        let channel = self.conn.create_channel().await.map_err(classify)?;
        channel.confirm_select(ConfirmSelectOptions::default()).await.map_err(classify)?;
        Ok(channel)
    }

    /// Waits while the broker takes nothing.
    async fn takes_messages(&self, deadline: Instant) -> Result<()> {
        while self.conn.status().blocked() {
            if Instant::now() + LOOK > deadline {
                return Err(full());
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }
}

async fn confirmation(sending: Sending<'_>) -> lapin::Result<Confirmation> {
    sending.await?.await
}

/// Hands a message to the client. Its frames are in line when this returns, so that the order of calls is that of messages.
fn send<'a>(channel: &'a Channel, message: &'a Publication, mandatory: bool) -> Sending<'a> {
    let options = BasicPublishOptions { mandatory, ..BasicPublishOptions::default() };
    let properties = BasicProperties::default().with_delivery_mode(PERSISTENT);
    let (exchange, key) = (message.exchange.as_str().into(), message.key.as_str().into());
    let mut sending: Sending<'a> =
        Box::pin(channel.basic_publish(exchange, key, options, &message.body, properties));
    match (&mut sending).now_or_never() {
        Some(sent) => Box::pin(std::future::ready(sent)),
        None => sending,
    }
}

/// What the broker said of each message. Returned ones are known by what they say.
fn judge(confirmed: Vec<Result<Confirmation>>, messages: &[Publication], mandatory: bool) -> Vec<Result<()>> {
    let mut returned = Vec::new();
    let mut answers: Vec<Result<()>> = Vec::with_capacity(confirmed.len());
    for answer in confirmed {
        answers.push(match answer {
            Ok(confirmation) => {
                // News that a listener on its way out did not take is no loss.
                let lost = mandatory && confirmation.is_nack();
                returned.extend(confirmation.take_message());
                if lost { Err(uncertain(refused())) } else { Ok(()) }
            }
            Err(error) => Err(error),
        });
    }
    for message in returned {
        let is_it = |sent: &Publication| {
            sent.key == message.delivery.routing_key.as_str() && sent.body == message.delivery.data
        };
        let mut found =
            messages.iter().zip(&mut answers).filter(|(sent, answer)| answer.is_ok() && is_it(sent));
        if let Some((_, answer)) = found.next() {
            *answer = Err(unroutable());
        }
    }
    answers
}

const REFUSED: &str = "the broker could not store the message: see its log for the state of the queue";

fn refused() -> Error {
    own(ErrorKind::Unavailable, REFUSED)
}

fn is_refused(error: &Error) -> bool {
    error.message() == REFUSED
}

fn full() -> Error {
    own(
        ErrorKind::Full,
        "the broker takes no messages: it is out of memory or disk (see its alarms), or let consumers catch up",
    )
}

const UNROUTABLE: &str = "the broker has no queue for the message any more; repeating declares it anew";

fn unroutable() -> Error {
    own(ErrorKind::Unavailable, UNROUTABLE)
}

fn is_unroutable(error: &Error) -> bool {
    error.message() == UNROUTABLE
}
