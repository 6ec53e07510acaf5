//! The connection that all consumers share, and the announcements of new queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyqueue::Result;
use futures_util::StreamExt;
use futures_util::future::{join_all, join4};
use lapin::options::{BasicConsumeOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, Consumer};
use tokio::sync::mpsc;

use crate::config::Config;
use crate::error::{Right, classify, is_missing};
use crate::link::{Link, channel, within};
use crate::names::{LevelQueue, Names};
use crate::topology::{bind, count, declare_shared};

/// The channel to which announcements are sent.
pub(crate) type Announcements = mpsc::Sender<LevelQueue>;

/// Opens channels for consumers.
pub(crate) struct ConsumerConnection {
    config: Arc<Config>,
    names: Names,
    link: Link,
    announcements: Announcements,
    session: tokio::sync::Mutex<Option<Session>>,
}

struct Session {
    conn: Arc<Connection>,
    is_listening: Arc<AtomicBool>,
    _bell: Channel,
}

impl ConsumerConnection {
    pub(crate) fn new(config: &Arc<Config>, names: &Names, announcements: Announcements) -> Self {
        Self {
            config: Arc::clone(config),
            names: names.clone(),
            link: Link::new(config, "consumer"),
            announcements,
            session: tokio::sync::Mutex::default(),
        }
    }

    fn limit(&self) -> Duration {
        self.config.call_timeout
    }

    /// Opens a channel. Queues that are declared from now on are announced.
    pub(crate) async fn channel(&self) -> Result<(Arc<Connection>, Channel)> {
        let conn = {
            let mut current = self.session.lock().await;
            let is_usable = |session: &&Session| session.is_alive() && self.link.is_current(&session.conn);
            match current.as_ref().filter(is_usable) {
                Some(session) => Arc::clone(&session.conn),
                None => Arc::clone(&current.insert(self.start().await?).conn),
            }
        };
        let opened = channel(&conn, self.limit()).await.inspect_err(|_| self.link.discard(&conn))?;
        Ok((conn, opened))
    }

    async fn start(&self) -> Result<Session> {
        let conn = self.link.connection().await?;
        let listening = within(self.limit(), self.listen(&conn)).await;
        let (channel, consumer) = listening.inspect_err(|_| self.link.discard(&conn))?;
        let is_listening = Arc::new(AtomicBool::new(true));
        tokio::spawn(forward(consumer, self.announcements.clone(), Arc::clone(&is_listening)));
        Ok(Session { conn, is_listening, _bell: channel })
    }

    async fn listen(&self, conn: &Connection) -> Result<(Channel, Consumer)> {
        let channel = conn.create_channel().await.map_err(classify)?;
        // All requests are sent together, since the first pull waits for the answers. An empty queue name
        // means the queue that the channel declared last.
        let options =
            QueueDeclareOptions { exclusive: true, auto_delete: true, ..QueueDeclareOptions::default() };
        let declaring = channel.queue_declare("".into(), options, FieldTable::default());
        let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
        let consuming = channel.basic_consume("".into(), "news".into(), options, FieldTable::default());
        let (shared, declared, bound, consumer) = join4(
            declare_shared(&channel, &self.names),
            declaring,
            bind(&channel, String::new(), self.names.announcements(), String::new()),
            consuming,
        )
        .await;
        shared?;
        declared.map_err(|error| Right::Configure.classify(error))?;
        bound?;
        let consumer = consumer.map_err(|error| Right::Read.classify(error))?;
        Ok((channel, consumer))
    }

    /// Returns those of these queues that exist, with the number of ready messages in each. They are tried
    /// one after the other, since asking for a missing queue closes the channel.
    pub(crate) async fn try_all(&self, level_queues: Vec<LevelQueue>) -> Result<Vec<(LevelQueue, u64)>> {
        let mut found = Vec::new();
        for level_queue in level_queues {
            let (_conn, channel) = self.channel().await?;
            match within(self.limit(), count(&channel, self.names.queue(&level_queue))).await {
                Ok(ready) => {
                    let _ = tokio::time::timeout(self.limit(), channel.close(200, "done".into())).await;
                    found.push((level_queue, ready as u64));
                }
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Returns how many messages are ready in these queues. Queues that were removed count as empty.
    pub(crate) async fn count(&self, level_queues: Vec<LevelQueue>) -> Result<u64> {
        let (_conn, channel) = self.channel().await?;
        let counts =
            join_all(level_queues.iter().map(|level_queue| count(&channel, self.names.queue(level_queue))));
        let counts = within(self.limit(), async { counts.await.into_iter().sum::<Result<usize>>() }).await;
        let _ = tokio::time::timeout(self.limit(), channel.close(200, "done".into())).await;
        match counts {
            Err(error) if is_missing(&error) => {
                Ok(self.try_all(level_queues).await?.into_iter().map(|(_, ready)| ready).sum())
            }
            counts => counts.map(|ready| ready as u64),
        }
    }

    /// Drops a connection on which a call was not answered.
    pub(crate) fn discard(&self, conn: &Arc<Connection>) {
        self.link.discard(conn);
    }

    pub(crate) async fn close(&self, patience: Duration) {
        *self.session.lock().await = None;
        self.link.close(patience).await;
    }
}

impl Session {
    fn is_alive(&self) -> bool {
        self.conn.status().connected() && self.is_listening.load(Ordering::Acquire)
    }
}

/// Forwards announcements until the connection ends. Then the flag says that announcements are missed.
async fn forward(mut consumer: Consumer, announcements: Announcements, is_listening: Arc<AtomicBool>) {
    while let Some(Ok(delivery)) = consumer.next().await {
        let level_queue = std::str::from_utf8(&delivery.data).ok().and_then(LevelQueue::from_routing_word);
        if let Some(level_queue) = level_queue
            && announcements.send(level_queue).await.is_err()
        {
            break;
        }
    }
    is_listening.store(false, Ordering::Release);
}
