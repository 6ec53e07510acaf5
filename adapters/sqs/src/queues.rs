//! The queues and their URLs, which are cached until the server says that a queue does not exist.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyqueue::{ErrorKind, Result};
use aws_sdk_sqs::types::QueueAttributeName;

use crate::config::Config;
use crate::error::{ERRORS, Refused, unexpected_reply};
use crate::limits::RETENTION;
use crate::names::{LevelQueue, Names};
use crate::server::Server;

/// How many URLs are cached. Beyond that, all are looked up again.
const MAX_KNOWN: usize = 20_000;
/// After this many receives the server moves a message to the dead-letter queue, in case no handle of this
/// crate can. It is the server's highest value.
const MAX_RECEIVE_COUNT: u32 = 1000;

/// A queue that is being created. Holds the answer for all callers once there is one.
type Creating = Arc<tokio::sync::Mutex<Option<Result<Arc<str>>>>>;

/// The queues of one handle.
#[derive(Debug)]
pub(crate) struct Queues {
    names: Names,
    create: bool,
    fifo: bool,
    known: Mutex<HashMap<LevelQueue, Arc<str>>>,
    creating: Mutex<HashMap<LevelQueue, Creating>>,
}

impl Queues {
    pub(crate) fn new(config: &Config) -> Self {
        let names = Names::new(&config.prefix, config.fifo);
        Self {
            names,
            create: config.create,
            fifo: config.fifo,
            known: Mutex::default(),
            creating: Mutex::default(),
        }
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LevelQueue, Arc<str>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, level_queue: &LevelQueue, url: String) -> Arc<str> {
        let url: Arc<str> = url.into();
        let mut known = self.lock();
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(level_queue.clone(), url.clone());
        url
    }

    /// Forgets a queue of which the server said that it does not exist, so that it is looked up again.
    pub(crate) fn forget(&self, level_queue: &LevelQueue, url: &str) {
        let mut known = self.lock();
        // Another task may have found the new one meanwhile.
        if known.get(level_queue).is_some_and(|kept| **kept == *url) {
            known.remove(level_queue);
        }
    }

    /// Returns the queue's URL, if the queue exists.
    pub(crate) async fn find(&self, server: &Server, level_queue: &LevelQueue) -> Result<Option<Arc<str>>> {
        if let Some(url) = self.lock().get(level_queue) {
            return Ok(Some(url.clone()));
        }
        let url = server.url(&self.names.queue(level_queue)).await?;
        Ok(url.map(|url| self.remember(level_queue, url)))
    }

    /// Returns the queue's URL. Creates the queue if it is missing and that is allowed. Concurrent callers
    /// share one request and its answer.
    pub(crate) async fn find_or_create(&self, server: &Server, level_queue: &LevelQueue) -> Result<Arc<str>> {
        if let Some(url) = self.lock().get(level_queue) {
            return Ok(url.clone());
        }
        let creating = self.creating().entry(level_queue.clone()).or_default().clone();
        let mut answer = creating.lock().await;
        if let Some(answer) = &*answer {
            return answer.clone();
        }
        // If this future is dropped here, the next one that waits continues.
        let created = self.create_one(server, level_queue).await;
        *answer = Some(created.clone());
        let mut all = self.creating();
        if all.get(level_queue).is_some_and(|kept| Arc::ptr_eq(kept, &creating)) {
            all.remove(level_queue);
        }
        created
    }

    fn creating(&self) -> MutexGuard<'_, HashMap<LevelQueue, Creating>> {
        self.creating.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn create_one(&self, server: &Server, level_queue: &LevelQueue) -> Result<Arc<str>> {
        let name = self.names.queue(level_queue);
        if !self.create {
            let missing = || ERRORS.error(ErrorKind::Incompatible, missing_text(&name));
            return self.find(server, level_queue).await?.ok_or_else(missing);
        }
        let kept = (QueueAttributeName::MessageRetentionPeriod, RETENTION.as_secs().to_string());
        let mut settings = vec![kept];
        if self.fifo {
            settings.push((QueueAttributeName::FifoQueue, "true".to_owned()));
        }
        if !level_queue.partition.is_dead_letters() {
            let arn = self.dead_letter_queue_arn(server, level_queue).await?;
            let policy =
                format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":"{MAX_RECEIVE_COUNT}"}}"#);
            settings.push((QueueAttributeName::RedrivePolicy, policy));
        }
        // An existing queue with other settings is used as it is.
        let url = match server.create(&name, &settings).await? {
            Some(url) => url,
            None => server.url(&name).await?.ok_or_else(|| Refused::NoQueue.into_error())?,
        };
        Ok(self.remember(level_queue, url))
    }

    /// Whether missing queues are created.
    pub(crate) fn creates_missing(&self) -> bool {
        self.create
    }

    /// Returns the ARN of a queue's dead-letter queue, which is the same level of the dead letters.
    async fn dead_letter_queue_arn(&self, server: &Server, level_queue: &LevelQueue) -> Result<String> {
        let level_queue = LevelQueue::new(&level_queue.partition.dead_letters(), level_queue.level);
        let url = Box::pin(self.find_or_create(server, &level_queue)).await?;
        self.arn(server, &level_queue, &url).await
    }

    /// Returns the queue's ARN.
    pub(crate) async fn arn(&self, server: &Server, level_queue: &LevelQueue, url: &str) -> Result<String> {
        let answer = server.attributes(url, &[QueueAttributeName::QueueArn]).await;
        let [arn] = answer
            .map_err(|refused| {
                self.forget(level_queue, url);
                refused.into_error()
            })?
            .try_into()
            .unwrap_or([None]);
        arn.ok_or_else(|| unexpected_reply("a queue's ARN"))
    }
}

fn missing_text(name: &str) -> String {
    format!("the queue {name} does not exist: create it, or let this handle create it (create=true)")
}
