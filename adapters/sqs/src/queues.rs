//! Which queues there are: URLs as the server tells them, kept until it says that there is no such queue.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyqueue::{ErrorKind, Result};
use aws_sdk_sqs::types::QueueAttributeName;

use crate::config::Config;
use crate::error::{Refused, own};
use crate::limits::RETENTION;
use crate::names::{Names, Place};
use crate::server::Server;
use crate::wire::strange;

/// URLs that are kept; beyond that all are asked for anew.
const MAX_KNOWN: usize = 20_000;
/// After so many receptions the server itself puts a message aside, in case that nobody here can. Its largest value.
const BACKSTOP_RECEIVES: u32 = 1000;

/// One queue being made, for all who want it: the answer, once there is one.
type Making = Arc<tokio::sync::Mutex<Option<Result<Arc<str>>>>>;

/// The queues of one handle.
#[derive(Debug)]
pub(crate) struct Queues {
    names: Names,
    create: bool,
    fifo: bool,
    known: Mutex<HashMap<Place, Arc<str>>>,
    making: Mutex<HashMap<Place, Making>>,
}

impl Queues {
    pub(crate) fn new(config: &Config) -> Self {
        let names = Names::new(&config.prefix, config.fifo);
        Self {
            names,
            create: config.create,
            fifo: config.fifo,
            known: Mutex::default(),
            making: Mutex::default(),
        }
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Place, Arc<str>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, place: &Place, url: String) -> Arc<str> {
        let url: Arc<str> = url.into();
        let mut known = self.lock();
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(place.clone(), url.clone());
        url
    }

    /// The server said that this queue is not there: it is looked up anew.
    pub(crate) fn forget(&self, place: &Place, url: &str) {
        let mut known = self.lock();
        // Meanwhile somebody may have found the new one.
        if known.get(place).is_some_and(|kept| **kept == *url) {
            known.remove(place);
        }
    }

    /// The queue, if it is there.
    pub(crate) async fn find(&self, server: &Server, place: &Place) -> Result<Option<Arc<str>>> {
        if let Some(url) = self.lock().get(place) {
            return Ok(Some(url.clone()));
        }
        let url = server.url(&self.names.queue(place)).await?;
        Ok(url.map(|url| self.keep(place, url)))
    }

    /// The queue, made if need be and if that is allowed: once for all who ask meanwhile, and its answer is theirs too.
    pub(crate) async fn make(&self, server: &Server, place: &Place) -> Result<Arc<str>> {
        if let Some(url) = self.lock().get(place) {
            return Ok(url.clone());
        }
        let making = self.making().entry(place.clone()).or_default().clone();
        let mut answer = making.lock().await;
        if let Some(answer) = &*answer {
            return answer.clone();
        }
        // If this future is dropped here, the next one in the line goes on.
        let made = self.make_one(server, place).await;
        *answer = Some(made.clone());
        let mut all = self.making();
        if all.get(place).is_some_and(|kept| Arc::ptr_eq(kept, &making)) {
            all.remove(place);
        }
        made
    }

    fn making(&self) -> MutexGuard<'_, HashMap<Place, Making>> {
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn make_one(&self, server: &Server, place: &Place) -> Result<Arc<str>> {
        let name = self.names.queue(place);
        if !self.create {
            let missing = || own(ErrorKind::Incompatible, missing_text(&name));
            return self.find(server, place).await?.ok_or_else(missing);
        }
        let kept = (QueueAttributeName::MessageRetentionPeriod, RETENTION.as_secs().to_string());
        let mut settings = vec![kept];
        if self.fifo {
            settings.push((QueueAttributeName::FifoQueue, "true".to_owned()));
        }
        if !place.partition.is_dead_letters() {
            let arn = self.backstop(server, place).await?;
            let policy =
                format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":"{BACKSTOP_RECEIVES}"}}"#);
            settings.push((QueueAttributeName::RedrivePolicy, policy));
        }
        // One that was made with other settings is taken as it is.
        let url = match server.create(&name, &settings).await? {
            Some(url) => url,
            None => server.url(&name).await?.ok_or_else(|| Refused::NoQueue.into_error())?,
        };
        Ok(self.keep(place, url))
    }

    /// Whether missing queues are made.
    pub(crate) fn makes(&self) -> bool {
        self.create
    }

    /// Where the server puts aside what is received again and again: the same level of the dead letters.
    async fn backstop(&self, server: &Server, place: &Place) -> Result<String> {
        let place = Place::new(&place.partition.dead_letters(), place.level);
        let url = Box::pin(self.make(server, &place)).await?;
        self.arn(server, &place, &url).await
    }

    /// What the server calls a queue in policies and tasks.
    pub(crate) async fn arn(&self, server: &Server, place: &Place, url: &str) -> Result<String> {
        let answer = server.attributes(url, &[QueueAttributeName::QueueArn]).await;
        let [arn] = answer
            .map_err(|refused| {
                self.forget(place, url);
                refused.into_error()
            })?
            .try_into()
            .unwrap_or([None]);
        arn.ok_or_else(|| strange("a queue's ARN"))
    }
}

fn missing_text(name: &str) -> String {
    format!("there is no queue {name}: make it, or let this handle make it (create=true)")
}
